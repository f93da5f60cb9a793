// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "weft/collective.h"

// The plan of an operation that the ranks share among themselves: which rank reduces which part, and which
// ranks have it in the end. Pure functions of the operation, the same on every rank. Any thread.
namespace weft::coll {

// A piece of the operation's vector (of its window, where there is one).
struct Part {
  size_t offset = 0;
  size_t bytes = 0;
};

struct Plan {
  bool reduces = false;      // everyone sends each rank its part, which that rank reduces
  bool distributes = false;  // each rank sends its part to everyone
  bool whole = false;        // small: everyone reduces all of it, in one step
  std::vector<Part> parts;   // by rank
};

// Vectors up to `oneStepBytes` are reduced by everyone. Reuses the plan's memory.
void makePlan(const Operation& operation, int ranks, size_t oneStepBytes, Plan* plan);

// The bytes that a rank receives by an operation.
size_t receivedBytes(const Operation& operation, int rank);

// The fault of an operation that this rank starts, in words; null: it has none.
const char* faultOf(const Operation& operation, int rank, int ranks);

}  // namespace weft::coll
