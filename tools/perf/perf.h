// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// `weft perf`: collectives over a network plugin, measured and verified. addPerf declares the subcommand;
// when it is the one that was asked for, its callback runs it and sets *exitCode. One thread.
namespace CLI {
class App;
}

namespace weft::perf {

void addPerf(CLI::App& app, int* exitCode);

}  // namespace weft::perf
