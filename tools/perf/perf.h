// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/perf/options.h"

// `weft perf`: collectives over a network plugin, measured and verified. Used by one thread.
namespace weft::perf {

int run(Options options);  // the program's exit status

// How this program was built: "12.2.0, optimized".
std::string buildText();

}  // namespace weft::perf
