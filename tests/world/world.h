// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/world/plan.h"

// A world: the ranks of a job in one thread, under virtual time, as a seed says. It is run from its beginning
// until nothing of it is left, and judged.
namespace weft::world {

// A line of the log of that weight or more.
struct Warning {
  Nanoseconds at{};  // of the world's time
  int rank = 0;
  std::string text;
};

struct Outcome {
  std::string complaint;  // empty: all held that must hold
  uint64_t hash = 0;      // of all that happened, in its order
  uint64_t steps = 0;
  Nanoseconds lasted{};  // in its own time
  size_t failed = 0;     // ends that failed, as they had to
  std::vector<Warning> warnings;
  std::string last;   // the last events of each rank
  std::string whole;  // all of them, if asked for
  std::string plan;
};

Outcome runWorld(const PlanOptions& options, bool keepAll = false);
Outcome runPlan(const WorldPlan& plan, bool keepAll);

}  // namespace weft::world
