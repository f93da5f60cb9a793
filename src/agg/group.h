// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>

#include "src/agg/child.h"
#include "src/agg/operation.h"

// A group at an aggregation daemon, from the moment when all its ranks are here: their announcements, the
// operations in their order (operation.h), and its end.
// While the group lives, progress() and watch() wait for no rank. When it has ended nothing moves any more,
// and close() may wait for each rank in turn. A group of which a rank leaves while nothing is to be done ends
// in silence, as all of them may be leaving: the others are told as soon as one of them starts an operation,
// and at the latest after GroupOptions::parting.
// A single thread at a time: the daemon's data thread, then the group's own errand.
namespace weft::agg {

struct GroupOptions {
  uint64_t id = 0;
  uint32_t ranks = 0;
  size_t chunkBytes = 0;
  size_t window = 16;  // chunks that are here at a time
  Milliseconds parting{20000};
  const Clock* clock = nullptr;
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
    uint64_t late = 0;  // how often all others waited for it
  };
  uint64_t id = 0;
  uint32_t ranks = 0;
  std::string ended;  // the reason; empty: the group lives
  GroupStatistics statistics;
  std::vector<Member> members;
};

class AggGroup {
 public:
  // The memory in bytes of a group of so many ranks; a number that does not fit becomes the largest one.
  static size_t memoryBytes(size_t ranks, size_t chunkBytes, size_t window);

  AggGroup(const GroupOptions& options, std::vector<Child> children);
  // Takes all of its memory. After an error the children are still here, to be told.
  Status prepare();

  // A pass over all stages. True when anything moved. Waits for nobody.
  bool progress();
  // Checks whether ranks have left or raised an alarm. Too slow for every pass.
  void watch();
  // Breaks the group: every rank is told why.
  void end(const std::string& why);
  bool hasEnded() const { return state_ != State::living; }
  // After the end, again and again until over(): the others are told what they have to hear.
  void settle();
  bool over() const;  // every rank has left, or was told why the group is broken
  // The last call: waits until nothing of the connections is under way. A group that is destroyed without it
  // waits for nothing; its connections go to their engine.
  void close();

  size_t bytes() const { return memoryBytes(options_.ranks, options_.chunkBytes, options_.window); }
  std::vector<Child>& children() { return children_; }
  GroupReport report() const;

 private:
  // Ordered: a state never goes back, and enter() alone changes it.
  enum class State : uint8_t {
    living,
    parting,  // a rank left when nothing was to be done; the others do not know it
    broken,   // every rank was told why
  };
  // False: it is in that state already, or beyond it. `why` stands for good.
  bool enter(State next, const std::string& why);
  bool receiveHeads(Child& child, bool* moved);
  bool takeHeads(bool* moved);
  bool open(const coll::OperationHead& head);
  bool moveOperations(bool* moved);
  void count(const AggOperation& operation);
  AggOperation& operation(uint64_t turn) { return *operations_[turn % kHeads]; }
  bool lose(const Child& child);
  bool waitsForAll();

  const GroupOptions options_;
  std::vector<Child> children_;  // by rank; outlive the operations
  coll::Members members_;
  std::optional<coll::BlockPool> blocks_;
  std::vector<std::unique_ptr<AggOperation>> operations_;  // by turn, kHeads of them
  uint64_t first_ = 0;                                     // the oldest operation that is not done
  uint64_t next_ = 0;                                      // behind the youngest that all have announced
  GroupStatistics statistics_;
  State state_ = State::living;
  std::string why_;  // the reason of the end
  TimePoint endedSince_{};
};

}  // namespace weft::agg
