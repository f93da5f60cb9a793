// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <CLI/CLI.hpp>

#include "tools/perf/perf.h"

// The command line of `weft perf`, and what other commands have in common with it.
namespace weft {

// `command` keeps references to the options.
void declarePerf(CLI::App& command, perf::Options& options);

const CLI::Validator& sizeInBytes();  // takes "8", "4K", "1.5M", "2GiB"

}  // namespace weft
