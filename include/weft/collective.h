// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weft/result.h"
#include "weft/transport.h"

// The offload seam: what a collective operation may be handed to instead of being built of point-to-point
// messages. A backend (peers, tree, sharp) makes Groups; a Group is one rank's membership.
//
// Threads: a Group's data calls and test come from one thread at a time; registering and closing from
// another. Nothing blocks but open and close. Every rank of a group starts the same operations in the same
// order: the order is what matches them. Sizes are bytes unless a comment says elements.
namespace weft::coll {

// NCCL's types. Their numbers go over the wire; 2 and 3 are not used.
enum class ElementType : uint8_t {
  i8 = 0,
  u8 = 1,
  i32 = 4,
  u32 = 5,
  i64 = 6,
  u64 = 7,
  f16 = 8,
  bf16 = 9,
  f32 = 10,
  f64 = 11,
};
constexpr size_t kElementTypes = 12;  // the numbers are below this

// NCCL's reductions. bor is the daemons' own, for u8: they lay the chunks of a gather over each other by it.
// The numbers go over the wire; 4 to 7 are not used.
enum class ReduceOp : uint8_t { sum = 0, prod = 1, min = 2, max = 3, bor = 8 };
constexpr size_t kReduceOps = 9;  // the numbers are below this

enum class OperationKind : uint8_t { allReduce, allGather, reduceScatter };

// Registered memory, on behalf of one group.
class GroupMemory {
 public:
  virtual ~GroupMemory() = default;
};

// An operation as a rank starts it. allReduce: `send` and `receive` hold `bytes`. allGather: the whole is
// ranks * bytesPerRank long; only [windowOffset, +windowBytes) of it takes part. `send` points to the first
// byte of what lies both in the window and in this rank's own part (and to nothing where that is empty),
// `receive` holds the window. reduceScatter: the same, with the two changing places.
struct Operation {
  OperationKind kind = OperationKind::allReduce;
  ElementType type = ElementType::u8;
  ReduceOp op = ReduceOp::sum;
  const void* send = nullptr;
  void* receive = nullptr;
  GroupMemory* sendMemory = nullptr;
  GroupMemory* receiveMemory = nullptr;
  size_t bytes = 0;
  size_t bytesPerRank = 0;
  size_t windowOffset = 0;
  size_t windowBytes = 0;
};

class Group;

// Owned by its group, which is found by it: NCCL tests a request without naming its group.
class GroupRequest {
 public:
  Group* group = nullptr;
};

// As core's: `ok == false` means that the group is broken for good, and error() says why.
struct Started {
  bool ok = true;
  GroupRequest* request = nullptr;  // null with ok: not now, call again with the same arguments
};
struct Finished {
  bool ok = true;
  bool done = false;
  size_t bytes = 0;  // received, when done
};

struct GroupCounters {
  uint64_t operations = 0;
  uint64_t bytesSent = 0;  // payload that left this rank
};

class Group {
 public:
  // In any order with what is outstanding: nothing lands afterwards.
  virtual ~Group() = default;
  // Before a group is destroyed, when it is not torn down in a hurry: says goodbye, and waits a second or two
  // at most until the others have done so too. From any thread, after the last data call.
  virtual void close() = 0;
  virtual Result<GroupMemory*> registerMemory(const MemoryDesc& desc) = 0;
  virtual Status deregisterMemory(GroupMemory* memory) = 0;
  virtual Started start(const Operation& operation) = 0;
  // Makes what was received visible to a GPU. The request may be done at once, and is never null with ok:
  // NCCL takes null for done. So where no more flushes fit (64 beside the operations), the group is broken.
  // `memory` is not null.
  virtual Started flush(const void* data, size_t bytes, GroupMemory* memory) = 0;
  virtual Finished test(GroupRequest* request) = 0;  // a request is dead after done
  virtual Error error() const = 0;                   // the sticky error; only when a call said !ok
  virtual GroupCounters counters() const = 0;
};

}  // namespace weft::coll
