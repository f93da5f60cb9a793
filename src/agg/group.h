// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>

#include "src/agg/child.h"
#include "src/coll/join.h"
#include "src/coll/kernels.h"

// A group at an aggregation daemon, from the moment when all its children are here. It takes the children's
// chunks and reduces each chunk as soon as it is complete. Then it passes the chunk to its parent, or as the
// root back down. Operations and their chunks go in order. A slot is free again when its result was delivered
// to every child; that bounds how far a child may be ahead.
// There are two stages. While the group lives, progress() and watch() wait for no member. When it has ended
// nothing moves any more, and settle() and the destructor may wait for each child in turn. A group whose
// child leaves while nothing is to be done ends in silence, as all of them may be leaving: the other children
// are told as soon as one of them starts an operation.
// A single thread at a time: the daemon's data thread, then the group's own errand.
namespace weft::agg {

// `parent`: the membership at the daemon above; none: this daemon is the root.
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

// A group in the daemon's account, by value, since a single thread has the group itself.
struct GroupReport {
  struct Member {
    std::string name;
    uint32_t ranks = 0;
    uint64_t late = 0;  // how often all others waited for it
  };
  uint64_t id = 0;
  uint32_t ranks = 0;
  bool root = true;
  std::string ended;  // the reason; empty: the group lives
  GroupStatistics statistics;
  std::vector<Member> members;
};

class AggGroup {
 public:
  // The memory in bytes of a group with so many children.
  static size_t memoryBytes(size_t children, size_t chunkBytes, size_t window);

  static Result<std::unique_ptr<AggGroup>> create(GroupOptions options, std::vector<Child> children);
  explicit AggGroup(GroupOptions options) : options_(std::move(options)) {}

  // A pass over all stages. True when anything moved. Waits for nobody.
  bool progress();
  // Checks whether children have left or raised an alarm. Too slow for every pass.
  void watch();
  bool hasEnded() const { return state_ != State::living; }
  // After the end: closes the children that have left, one after another, and tells the others what they have
  // to hear and have not heard.
  void settle();
  bool over() const;  // every child has left and is closed
  // The last call: leaves the parent, and waits until nothing of the connections is under way. A group that
  // is destroyed without it waits for nothing; its connections go to their engine.
  void close();

  size_t bytes() const { return memory_.size() + small_.size(); }
  const std::vector<Child>& children() const { return children_; }
  GroupReport report() const;

 private:
  // An operation. Its steps are its chunks; a single step where the data came with the head.
  struct Record {
    coll::OperationHead head;
    size_t steps = 0;
    uint64_t firstChunk = 0;            // in the group's count of chunks
    bool headSent = false;              // to the parent
    size_t reduced = 0;                 // steps that are reduced
    size_t raised = 0;                  // steps sent to the parent
    size_t asked = 0;                   // steps for whose result a receive is posted at the parent
    size_t ready = 0;                   // steps whose result is here
    std::vector<uint32_t> undelivered;  // by step: children that have not got the result
    size_t finished = 0;                // steps whose result every child has
  };
  // A message to or from the parent that is under way.
  struct UpFlight {
    core::Request* request;
    uint64_t operation;
    size_t step;
    bool head;
  };

  // Ordered: a state never goes back, and enter() alone changes it.
  enum class State : uint8_t {
    living,
    parting,  // a child left when nothing was to be done; the others do not know it
    broken,   // every child and the parent were told why
  };
  // False: it is in that state already, or beyond it. `why` stands for good.
  bool enter(State next, const std::string& why);
  Status prepare(std::vector<Child> children);
  Status prepareParent();
  bool receiveAll(bool* moved);
  bool takeHeads(bool* moved);
  bool openRecord(const coll::OperationHead& head);
  bool reduceReady(bool* moved);
  bool reduceStep(Record& record, size_t step);
  bool expectSize(size_t child, const Record& record, coll::Span chunk, size_t size);
  void combine(const Record& record, coll::Span chunk, std::byte* to);
  // The parent's side is in uplink.cc.
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
  bool blameParent();                          // it is gone, or said why
  bool blameParent(int bytes, size_t wanted);  // it sent a result of another size
  void end(const coll::Alarm& why);            // tells every child and the parent
  void part(const Child& child);               // ends it in silence
  bool waitsForAll() const;
  void dismiss(Child& child);

  coll::Span chunkOf(const Record& record, size_t step) const;
  Record& record(uint64_t operation) { return operations_[operation - first_]; }
  bool has(uint64_t operation) const {
    return operation >= first_ && operation < first_ + operations_.size();
  }
  std::byte* resultOf(uint64_t chunk) const;
  // The parent's results; at the root the results themselves.
  std::byte* downOf(uint64_t chunk) const;
  // Inline data, upwards and downwards.
  std::byte* smallOf(uint64_t operation) const;
  std::byte* smallDownOf(uint64_t operation) const;
  bool isRoot() const { return !options_.parent; }

  GroupOptions options_;
  std::vector<Child> children_;             // ordered; destroyed after the memory
  coll::Staging memory_;                    // the children's slots, the results, the parent's results
  coll::Staging small_;                     // the same for data that travels with heads
  core::MemoryHandle* upHandle_ = nullptr;  // the handles of both memories at the parent's comms
  core::MemoryHandle* smallUpHandle_ = nullptr;
  core::MemoryHandle* downHandle_ = nullptr;
  core::MemoryHandle* smallDownHandle_ = nullptr;
  std::deque<Record> operations_;
  uint64_t first_ = 0;                                    // the number of the oldest record
  uint64_t chunks_ = 0;                                   // chunks of all records so far
  uint64_t freed_ = 0;                                    // chunks whose slots are free again
  uint64_t reducing_ = 0, raising_ = 0, lowerAsked_ = 0;  // the operation at which each stage is
  std::deque<UpFlight> raised_;                           // on the way to the parent
  std::deque<UpFlight> lowered_;                          // receives posted for the parent's results
  std::vector<const void*> inputs_;
  GroupStatistics statistics_;
  State state_ = State::living;
  std::string why_;  // the reason of the end
};

}  // namespace weft::agg
