// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <CLI/CLI.hpp>

#include "tools/info/info.h"
#include "tools/perf/perf.h"

// The weft command: each subcommand declares itself and leaves its exit code here.
int main(int argc, char** argv) {
  CLI::App app("weft: an NCCL network plugin, and the tools to see, prove and diagnose it");
  app.set_version_flag("--version", WEFT_VERSION);
  app.require_subcommand(1);
  int exitCode = 0;
  weft::info::addInfo(app, &exitCode);
  weft::perf::addPerf(app, &exitCode);
  CLI11_PARSE(app, argc, argv);
  return exitCode;
}
