// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>

#include "tools/report/comparison.h"

// `weft report`: where the time of a run went, as a page, as text or for programs. Used by one thread.
namespace weft::report {

struct Options {
  std::string first;   // a folder of profiles, traces or counters
  std::string second;  // to compare it with; empty: none
  std::string output = "weft-report.html";
  bool text = false;  // instead of the page, on the standard output
  bool json = false;  // likewise
};

struct Report {
  Run first;
  std::optional<Run> second;
};

std::string textOf(const Report& report);
std::string pageOf(const Report& report);
std::string jsonOf(const Report& report);

// The exit code: 1 where something cannot be read or written.
int run(const Options& options);

}  // namespace weft::report
