// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>

#include "src/agg/child.h"
#include "src/coll/join.h"
#include "src/coll/kernels.h"

// A group at an aggregation daemon, from when all its children are here: takes their chunks, reduces each as
// soon as it is complete, passes it to the parent, or at the root back down. Operations and their chunks go
// in order; a slot is free again when its result has been delivered to every child, which is what bounds how
// far a child may be ahead. Two stages: while it lives, progress() and watch() wait for no member; when it
// has ended nothing moves any more, and settle() and the destructor may wait for each child in turn. One
// thread at a time: the daemon's data thread, then the group's own errand.
namespace weft::agg {

struct GroupOptions {
  uint64_t id = 0;
  uint32_t ranks = 0;
  size_t chunkBytes = 0;
  size_t window = 16;
  std::optional<coll::Membership> parent;
};

struct GroupStatistics {
  uint64_t operations = 0;
  uint64_t chunks = 0;
  uint64_t bytesIn = 0;
  uint64_t bytesOut = 0;
};

// A group as the daemon tells of it, by value: the group itself belongs to one thread.
struct GroupReport {
  struct Member {
    std::string name;
    uint32_t ranks = 0;
    uint64_t late = 0;  // how often all others waited for it
  };
  uint64_t id = 0;
  uint32_t ranks = 0;
  bool root = true;
  std::string ended;  // why; empty: it lives
  GroupStatistics statistics;
  std::vector<Member> members;
};

class AggGroup {
 public:
  // Memory that a group of so many children takes.
  static size_t memoryBytes(size_t children, size_t chunkBytes, size_t window);

  static Result<std::unique_ptr<AggGroup>> create(GroupOptions options, std::vector<Child> children);
  explicit AggGroup(GroupOptions options) : options_(std::move(options)) {}
  ~AggGroup();

  // A pass; true when anything moved.
  bool progress();
  // Looks whether children left or raised an alarm; not for every pass.
  void watch();
  bool hasEnded() const { return !broken_.empty(); }
  // After the end: closes children that have left, one after another, and says again what they have not
  // heard.
  void settle();
  bool over() const;  // every child has left and is closed

  size_t bytes() const { return memory_.size() + small_.size(); }
  const std::vector<Child>& children() const { return children_; }
  GroupReport report() const;

 private:
  // An operation. Its steps are its chunks, or a single one where the data came with the head.
  struct Record {
    coll::OperationHead head;
    size_t steps = 0;
    uint64_t firstChunk = 0;            // of the group's count of chunks
    bool headSent = false;              // to the parent
    size_t reduced = 0;                 // steps that are
    size_t raised = 0;                  // steps sent to the parent
    size_t asked = 0;                   // steps for whose result a receive is posted
    size_t ready = 0;                   // steps whose result is here
    std::vector<uint32_t> undelivered;  // by step: children that have not got it
    size_t finished = 0;                // steps that every child has
  };
  struct UpFlight {
    core::Request* request;
    uint64_t operation;
    size_t step;
    bool head;
  };

  Status prepare(std::vector<Child> children);
  Status prepareParent();
  bool receiveAll(bool* moved);
  bool takeHeads(bool* moved);
  bool openRecord(const coll::OperationHead& head);
  bool reduceReady(bool* moved);
  bool reduceStep(Record& record, size_t step);
  bool expectSize(size_t child, const Record& record, coll::Span chunk, size_t size);
  void combine(const Record& record, coll::Span chunk, std::byte* to);
  bool raiseReady(bool* moved);
  bool raiseHead(Record& record, uint64_t index, bool* posted);
  bool raiseChunk(Record& record, uint64_t index, bool* posted);
  bool testRaised(bool* moved);
  bool raisedUpTo(uint64_t operation, size_t step) const;
  bool takeFromParent(bool* moved);
  bool deliver(Child& child, bool* moved);
  bool deliverStep(Child& child, Record& record, bool* posted);
  void retire();
  bool blame(const Child& child, const std::string& why);
  bool lose(const Child& child);
  bool blameParent();
  void end(const coll::Alarm& why);  // tells every child
  void dismiss(Child& child);

  coll::Span chunkOf(const Record& record, size_t step) const;
  Record& record(uint64_t operation) { return operations_[operation - first_]; }
  bool has(uint64_t operation) const {
    return operation >= first_ && operation < first_ + operations_.size();
  }
  std::byte* resultOf(uint64_t chunk) const;
  std::byte* downOf(uint64_t chunk) const;
  std::byte* smallOf(uint64_t operation) const;
  std::byte* smallDownOf(uint64_t operation) const;
  bool isRoot() const { return !options_.parent; }

  GroupOptions options_;
  std::vector<Child> children_;  // in their order; before the memory in destruction order
  coll::Staging memory_;         // children's slots, results, the parent's results
  coll::Staging small_;          // the same of what travels with heads
  core::MemoryHandle* upHandle_ = nullptr;
  core::MemoryHandle* smallUpHandle_ = nullptr;
  core::MemoryHandle* downHandle_ = nullptr;
  core::MemoryHandle* smallDownHandle_ = nullptr;
  std::deque<Record> operations_;
  uint64_t first_ = 0;                                    // number of the oldest record
  uint64_t chunks_ = 0;                                   // counted for all records
  uint64_t freed_ = 0;                                    // chunks whose slots are free again
  uint64_t reducing_ = 0, raising_ = 0, lowerAsked_ = 0;  // operations where each of these is at
  std::deque<UpFlight> raised_;                           // on their way to the parent
  std::deque<UpFlight> lowered_;                          // receives posted for its results
  std::vector<const void*> inputs_;
  std::vector<std::byte> expanded_;
  GroupStatistics statistics_;
  std::string broken_;  // why it has ended
};

}  // namespace weft::agg
