// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>

#include "tools/perf/results.h"

// The table that `weft perf` prints, in the columns of nccl-tests. Pure functions; any thread.
namespace weft::perf {

const char* tableHeader();            // the lines above it
std::string keyText(const Row& row);  // what was measured, in its columns
std::string halfText(const Results& results, const Row& row, const std::optional<RowHalf>& half);

}  // namespace weft::perf
