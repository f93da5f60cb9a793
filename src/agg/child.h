// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "src/base/fd.h"
#include "src/coll/pipe.h"
#include "src/coll/wire.h"

// A child of a group at an aggregation daemon, a rank or another daemon: its data lands in slots that are its
// alone, and its results leave from the group's. Owned by its group (group.h), on the
// daemon's data thread.
namespace weft::agg {

constexpr size_t kHeads = 16;  // operations a child may be ahead by
constexpr size_t kHeadSlot = coll::kOperationHeadBytes + coll::kInlineBytes;

// Receives of one tag that are posted in order into a ring of slots, and noted in order.
class InboundRing {
 public:
  struct Options {
    core::RecvComm* comm = nullptr;
    int tag = 0;
    std::byte* memory = nullptr;  // of the first slot
    size_t stride = 0;            // from slot to slot
    size_t bytes = 0;             // of a slot
    size_t slots = 0;
    core::MemoryHandle* handle = nullptr;
  };
  void open(const Options& options);
  // Posts until `limit` in all were posted, and notes what has come. False: the comm is broken.
  bool progress(uint64_t limit, bool* moved);
  uint64_t arrived() const { return arrived_; }
  std::byte* slot(uint64_t index) const { return options_.memory + index % options_.slots * options_.stride; }
  size_t size(uint64_t index) const { return sizes_[index % options_.slots]; }

 private:
  Options options_;
  std::vector<core::Request*> requests_;
  std::vector<size_t> sizes_;
  uint64_t posted_ = 0;
  uint64_t arrived_ = 0;
};

struct Child {
  std::unique_ptr<coll::Pipe> pipe;
  Fd link;
  uint32_t order = 0;  // the rank, or the lowest one below a daemon
  uint32_t weight = 1;
  bool daemon = false;
  std::string name;

  coll::Staging headMemory;
  core::MemoryHandle* dataHandle = nullptr;    // of the group's memory, to receive
  core::MemoryHandle* resultHandle = nullptr;  // of the same, to send
  core::MemoryHandle* smallHandle = nullptr;   // of small results, to send
  InboundRing heads;
  InboundRing data;

  // Results in order: which is next, and those whose sends are under way.
  struct Flight {
    core::Request* request;
    uint64_t operation;
    size_t step;
  };
  uint64_t resultOperation = 0;
  size_t resultStep = 0;
  std::deque<Flight> flights;

  bool gone = false;
  uint64_t late = 0;  // how often it was the last one that all others waited for
};

}  // namespace weft::agg
