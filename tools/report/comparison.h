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
  bool known = true;        // false: the two sources do not count the same
  double noise = 0.05;      // smaller shares are none
  double weight = 1;        // 0 to 1: how much of the run it is of
  double distance() const;  // 0: none; grows with the ratio of the two, either way
};

// Those that differ, by distance and weight; behind them those that do not. Where one of the two does not
// know the operations of NCCL, they are left out of both.
std::vector<Difference> differencesOf(const Run& first, const Run& second);

Section sectionOf(const std::vector<Difference>& differences, const Run& first, const Run& second);

}  // namespace weft::report
