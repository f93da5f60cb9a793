// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "weft/collective.h"

// The plan of an operation: which member reduces which part, and which have it in the end. Pure functions of
// the operation; the plans of all members fit together. Any thread.
namespace weft::coll {

// A piece of an operation's vector, or of its window where it has one, that goes in messages of its own.
struct Part {
  size_t offset = 0;
  size_t bytes = 0;
  size_t phase = 0;  // its first byte's place in a message of full size: messages end where others' do
  // The size of the message behind `done` bytes, where a message has `most` bytes at most.
  size_t next(size_t done, size_t most) const { return std::min(most - (phase + done) % most, bytes - done); }
};

// What a rank has to do. A member is another rank, or the daemon.
struct Plan {
  std::vector<Part> give;    // by member: of what this rank brings in, the part that the member reduces
  std::vector<Part> take;    // by member: of the result, the part that the member sends
  Part own;                  // the part of what this rank brings in that it reduces itself
  size_t ownAt = 0;          // the place of that part's result in the receive buffer
  bool reduces = false;      // own is reduced; else it is final as it is
  bool distributes = false;  // own's result goes to all other ranks
  bool whole = false;        // a small vector: every rank reduces all of it, in one step
};

// Among ranks. Vectors up to `oneStepBytes` are reduced whole by every rank. Reuses the plan's memory.
void makePlan(const Operation& operation, int rank, int ranks, size_t oneStepBytes, Plan* plan);
// Below a daemon, the only member, which reduces in chunks of so many bytes.
void makeTreePlan(const Operation& operation, int rank, size_t chunkBytes, Plan* plan);

bool isWindowed(OperationKind kind);
inline bool isReduction(OperationKind kind) {
  return kind != OperationKind::allGather;
}
// The bytes of the operation's vector or window.
size_t vectorBytes(const Operation& operation);
// The bytes that `rank` receives by the operation, as NCCL is told them.
size_t receivedBytes(const Operation& operation, int rank);

// The fault of an operation that this rank wants to start, in words; null: it has none. Numbers may be
// anything.
const char* faultOf(const Operation& operation, int rank, int ranks);

}  // namespace weft::coll
