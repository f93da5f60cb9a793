// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/core/net.h"
#include "weft/collective.h"

// The flushes that one group has under way. They have places of their own beside the operations': NCCL
// flushes the result of an operation that is over, while as many operations as a group takes may be under way
// again. Owned by the group; the thread of its data calls.
namespace weft::coll {

struct Flush final : GroupRequest {
  enum class State : uint8_t {
    free,
    waiting,  // for the fabric, or for the backend that began it
    visible,  // nothing had to be flushed, or it is
  };
  State state = State::free;
  core::Request* request = nullptr;  // of the connection that flushes; null: none does
  GroupRequest* inner = nullptr;     // of another group that flushes; null: none does
  GroupMemory* memory = nullptr;     // that is flushed
  size_t bytes = 0;
};

class FlushTable {
 public:
  static constexpr size_t kMost = 64;
  // A lack of places is an error: NCCL takes a flush without a request for one that is done.
  static constexpr const char* kFull = "64 flushes are under way, which is the most; test them first";

  explicit FlushTable(Group* owner) {
    for (Flush& one : flushes_) one.group = owner;
  }

  // A place in state waiting, with nothing in it. Null: all are taken.
  Flush* take(GroupMemory* memory, size_t bytes) {
    for (Flush& one : flushes_) {
      if (one.state != Flush::State::free) continue;
      one.state = Flush::State::waiting;
      one.request = nullptr;
      one.inner = nullptr;
      one.memory = memory;
      one.bytes = bytes;
      return &one;
    }
    return nullptr;
  }

  // The request as a flush; null: it is an operation's.
  Flush* find(GroupRequest* request) {
    const auto* place = static_cast<const void*>(request);
    const bool here = place >= flushes_.data() && place < flushes_.data() + flushes_.size();
    return here ? static_cast<Flush*>(request) : nullptr;
  }

  // Hands out what the flush came to, and its place is free again.
  static Finished finish(Flush& flush) {
    flush.state = Flush::State::free;
    return {true, true, flush.bytes};
  }

  auto begin() { return flushes_.begin(); }
  auto end() { return flushes_.end(); }

 private:
  std::array<Flush, kMost> flushes_;
};

}  // namespace weft::coll
