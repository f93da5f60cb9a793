// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "weft/collective.h"

// The plan of an operation that the ranks share among themselves: which rank reduces which part, and which
// ranks have the part in the end. Pure functions of the operation, the same on every rank. Any thread.
namespace weft::coll {

// A piece of the operation's vector, or of its window where it has one.
struct Part {
  size_t offset = 0;
  size_t bytes = 0;
};

// allReduce of a large vector reduces and distributes; reduceScatter only reduces, allGather only
// distributes.
struct Plan {
  bool reduces = false;      // every rank sends each rank its part, which that rank reduces
  bool distributes = false;  // every rank sends its part to all others
  bool whole = false;        // a small vector: every rank reduces all of it, in one step
  std::vector<Part> parts;   // by rank
};

// Vectors up to `oneStepBytes` are reduced whole by every rank. Reuses the plan's memory.
void makePlan(const Operation& operation, int ranks, size_t oneStepBytes, Plan* plan);

// The bytes that `rank` receives by the operation, as NCCL is told them.
size_t receivedBytes(const Operation& operation, int rank);

// The fault of an operation that this rank wants to start, in words; null: it has none. Numbers may be
// anything.
const char* faultOf(const Operation& operation, int rank, int ranks);

}  // namespace weft::coll
