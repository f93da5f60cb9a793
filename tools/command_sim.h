// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <CLI/CLI.hpp>

#include "tools/sim/sim.h"

// The command line of `weft sim`.
namespace weft {

// `command` keeps references to the options.
void declareSim(CLI::App& command, sim::Options& options);

}  // namespace weft
