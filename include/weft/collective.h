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

// The offload seam: a collective operation is handed to a Group here, instead of being built of
// point-to-point messages. A backend (peers, tree, sharp) reduces for the group; a Group is a rank's
// membership.
//
// Threads: a Group's data calls and test() come from one thread at a time; registering and closing may come
// from another. Nothing blocks but opening, closing and the registration of memory. Every rank of a group
// starts the same operations in the same order, and that order matches them. Sizes are bytes unless a comment
// says elements.
namespace weft::coll {

// NCCL's types, by the numbers of ncclDataType_t (nccl.h). The numbers go over the wire; 2 and 3 are not
// used.
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
constexpr size_t kElementTypes = 12;  // all numbers are below this

// NCCL's reductions, by the numbers of ncclRedOp_t. bor belongs to the daemons, for u8: by it they lay the
// chunks of a gather over each other. The numbers go over the wire; 4 to 7 are not used.
enum class ReduceOp : uint8_t { sum = 0, prod = 1, min = 2, max = 3, bor = 8 };
constexpr size_t kReduceOps = 9;  // all numbers are below this

enum class OperationKind : uint8_t { allReduce, allGather, reduceScatter };

// Registered memory of one group. The group owns it; a backend derives its own kind.
class GroupMemory {
 public:
  virtual ~GroupMemory() = default;
};

// An operation as a rank starts it.
// allReduce: `send` and `receive` hold `bytes`.
// allGather: the whole vector has ranks * bytesPerRank bytes, and only [windowOffset, +windowBytes) of it
// takes part. `send` points to the first byte that lies both in the window and in this rank's own part; where
// there is none, it points to nothing. `receive` holds the window.
// reduceScatter: the same with `send` and `receive` exchanged.
// The buffers belong to the group until test() says done.
struct Operation {
  OperationKind kind = OperationKind::allReduce;
  ElementType type = ElementType::u8;
  ReduceOp op = ReduceOp::sum;
  const void* send = nullptr;
  void* receive = nullptr;
  GroupMemory* sendMemory = nullptr;  // null where no byte of `send` is used
  GroupMemory* receiveMemory = nullptr;
  size_t bytes = 0;  // of allReduce: a multiple of the element's size
  size_t bytesPerRank = 0;
  size_t windowOffset = 0;
  size_t windowBytes = 0;
};

class Group;

// A request of a group. The group owns it and is found by it: NCCL tests a request without naming its group.
class GroupRequest {
 public:
  Group* group = nullptr;
};

// As the core's results: `ok == false` means that the group is broken for good, and error() says why.
struct Started {
  bool ok = true;
  GroupRequest* request = nullptr;  // null with ok: not now, call again with the same arguments
};
struct Finished {
  bool ok = true;
  bool done = false;
  size_t bytes = 0;  // bytes received, when done
};

struct GroupCounters {
  uint64_t operations = 0;
  uint64_t bytesSent = 0;  // payload that left this rank
};

// A rank's membership. The holder of the unique_ptr owns it.
class Group {
 public:
  // Waits for nothing. Without close() the fabric may still work on the buffers afterwards, until the context
  // is closed.
  virtual ~Group() = default;
  // The last call: says goodbye, waits a second or two at most until the other ranks have done so too, and
  // then until the fabric is through. It may come while operations are outstanding: nothing lands in their
  // buffers afterwards. Any thread, after the last data call.
  virtual void close() = 0;
  // Errors: `unavailable` where this group cannot use such memory; NCCL stages then.
  virtual Result<GroupMemory*> registerMemory(const MemoryDesc& desc) = 0;
  // An error: the memory is not of this group. May block until the fabric lets go of it.
  virtual Status deregisterMemory(GroupMemory* memory) = 0;
  // The memory of the operation must be registered with this group. A fault in the operation breaks the
  // group.
  virtual Started start(const Operation& operation) = 0;
  // Makes received data visible to a GPU. The request may be done at once. It is never null with ok, since
  // NCCL takes null for done; so a lack of room for it (64 flushes beside the operations) breaks the group.
  // `memory` is not null.
  virtual Started flush(const void* data, size_t bytes, GroupMemory* memory) = 0;
  virtual Finished test(GroupRequest* request) = 0;  // a request must not be used after done
  virtual Error error() const = 0;                   // the sticky error; meaningful once a call said !ok
  virtual GroupCounters counters() const = 0;
};

}  // namespace weft::coll
