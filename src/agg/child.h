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

// A child of a group at an aggregation daemon: a rank or another daemon. Its data lands in slots that are its
// own; its results leave from the group's slots. Its group (group.h) owns it. Used by the thread that has the
// group.
namespace weft::agg {

constexpr size_t kHeads = 16;  // operations that a child may be ahead by
constexpr size_t kHeadSlot = coll::kOperationHeadBytes + coll::kInlineBytes;

// The receives of a tag: posted in order into a ring of slots, and noted in order. The slots' memory is the
// group's.
class InboundRing {
 public:
  struct Options {
    core::RecvComm* comm = nullptr;
    int tag = 0;
    std::byte* memory = nullptr;  // of the first slot
    size_t stride = 0;            // bytes from slot to slot
    size_t bytes = 0;             // of a slot
    size_t slots = 0;
    core::MemoryHandle* handle = nullptr;
  };
  void open(const Options& options);
  // Posts until `limit` receives were posted in all, and notes those that have come. False: the comm is
  // broken.
  bool progress(uint64_t limit, bool* moved);
  uint64_t arrived() const { return arrived_; }
  std::byte* slot(uint64_t index) const { return options_.memory + index % options_.slots * options_.stride; }
  size_t size(uint64_t index) const { return sizes_[index % options_.slots]; }

 private:
  Options options_;
  std::vector<core::Request*> requests_;
  std::vector<size_t> sizes_;
  uint64_t posted_ = 0;   // receives posted so far
  uint64_t arrived_ = 0;  // receives that have come so far
};

// The connections of a child, its rings, and the state of its results.
struct Child {
  std::unique_ptr<coll::Pipe> pipe;
  Fd link;
  uint32_t order = 0;   // the rank, or the lowest rank below a daemon
  uint32_t weight = 1;  // ranks below it
  bool daemon = false;
  std::string name;

  coll::Staging headMemory;
  core::MemoryHandle* dataHandle = nullptr;    // of the group's memory, for receiving
  core::MemoryHandle* resultHandle = nullptr;  // of the same memory, for sending
  core::MemoryHandle* smallHandle = nullptr;   // of the small results, for sending
  InboundRing heads;                           // announcements of operations
  InboundRing data;                            // chunks of data

  // Results leave in order: the next one to send, and those whose sends are under way.
  struct Flight {
    core::Request* request;
    uint64_t operation;
    size_t step;
  };
  uint64_t resultOperation = 0;  // the operation whose result is sent next
  size_t resultStep = 0;         // the step of it
  std::deque<Flight> flights;

  bool gone = false;
  uint64_t late = 0;  // how often all others waited for it
};

}  // namespace weft::agg
