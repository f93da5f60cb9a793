// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <CLI/CLI.hpp>

#include "tools/perf/perf.h"

// The command line of `weft perf`.
namespace weft {

// `command` keeps references to the options.
void declarePerf(CLI::App& command, perf::Options& options);

}  // namespace weft
