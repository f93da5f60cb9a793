// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/report/run.h"
#include "tools/report/sections.h"

// Two runs beside each other: a number of each, those that differ most first. Pure functions; any thread.
namespace weft::report {

struct Difference {
  std::string name;  // "p99 of allreduce send"
  std::string unit;
  double first = 0;
  double second = 0;
  bool known = true;        // false: one of the two has too little of it to be compared
  double noise = 0.05;      // smaller shares are none
  double distance() const;  // 0: none; grows with the ratio of the two, either way
};

// Those that differ, by distance; behind them those that do not.
std::vector<Difference> differencesOf(const Run& first, const Run& second);

Section sectionOf(const std::vector<Difference>& differences, const Run& first, const Run& second);

}  // namespace weft::report
