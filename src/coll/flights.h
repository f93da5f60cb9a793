// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/coll/folds.h"

// The sends and receives of an operation that are under way. The operation owns it. Used by the thread that
// moves the operation.
namespace weft::coll {

class Flights {
 public:
  Flights(const Members& members, Fault* fault) : members_(members), fault_(*fault) {}

  enum class Post : uint8_t { posted, notNow, failed };
  // `block`: where the data lies; it has a use more until the send is done.
  Post send(int member, const std::byte* data, size_t bytes, core::MemoryHandle* memory, int tag,
            Block* block = nullptr);
  Post receive(int member, std::byte* data, size_t bytes, core::MemoryHandle* memory, int tag);
  // Tests the oldest first and stops at the first that is not done: the operation needs all of them, and each
  // test polls the network. Blocks without a use go back to the pool. False: one failed.
  bool test(BlockPool& blocks);
  bool empty() const { return flights_.empty(); }
  uint64_t bytesSent() const { return bytesSent_; }

 private:
  struct Flight {
    core::Request* request;
    size_t bytes;  // of a receive: the size that must come
    int member;
    bool sends;
    Block* block;
  };
  Post note(const core::Posted& posted, const core::Comm& comm, const Flight& flight);

  const Members& members_;
  Fault& fault_;
  std::deque<Flight> flights_;
  uint64_t bytesSent_ = 0;
};

}  // namespace weft::coll
