// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "weft/result.h"

// Numbers of GPUs as the command line has them. Pure functions; any thread.
namespace weft::plan {

// "2..4096" doubles from the first and ends with the last; "8,16,24" is a list; both can be mixed.
Result<std::vector<double>> gpuCounts(const std::string& text);

}  // namespace weft::plan
