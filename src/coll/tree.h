// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>

#include "src/coll/flush_table.h"
#include "src/coll/join.h"
#include "src/coll/memory_list.h"

// A rank's end of an aggregation tree: sends its vector to its daemon in chunks, each once, and receives the
// result's. Operations and their chunks go in order, several at a time; what is in flight the daemon bounds
// by the receives it has posted.
namespace weft::coll {

class TreeMemory final : public GroupMemory {
 public:
  core::MemoryHandle* sending = nullptr;
  core::MemoryHandle* receiving = nullptr;
  bool host = true;
};

class TreeGroup final : public Group {
 public:
  static constexpr int kSlots = 64;  // operations outstanding at a time

  static Result<std::unique_ptr<TreeGroup>> create(Membership membership, uint32_t rank, uint32_t ranks,
                                                   size_t chunkBytes);
  ~TreeGroup() override;

  Result<GroupMemory*> registerMemory(const MemoryDesc& desc) override;
  Status deregisterMemory(GroupMemory* memory) override;
  Started start(const Operation& operation) override;
  Started flush(const void* data, size_t bytes, GroupMemory* memory) override;
  Finished test(GroupRequest* request) override;
  Error error() const override;
  GroupCounters counters() const override { return counters_; }
  // It is broken, and not by what a rank did: a daemon or a connection to one failed.
  bool isTreeLost() const { return treeLost_; }
  // The daemon has not closed the connection that joined this rank, nor died. Any thread.
  bool isReachable() const { return membership_.linked(); }
  const std::string& daemon() const { return membership_.daemon; }
  // Ends the group as if the daemon had been found gone.
  void giveUp(const std::string& why) { loseTree(why); }

  TreeGroup(Membership membership, uint32_t rank, uint32_t ranks, size_t chunkBytes);

 private:
  enum class State : uint8_t { free, running, done };
  struct Slot : GroupRequest {
    State state = State::free;
    Operation operation;
    OperationHead head;
    size_t chunks = 0;
    size_t sent = 0;     // chunks posted; a head counts as one
    size_t asked = 0;    // receives posted
    size_t flights = 0;  // of both that are not done
  };
  struct Flight {
    core::Request* request;
    size_t bytes;
    Slot* slot;
    bool sends;
  };

  Slot& slotOf(uint64_t sequence) { return slots_[sequence % kSlots]; }
  std::byte* headOf(const Slot& slot) const;
  Span chunkOf(const Slot& slot, size_t index) const;
  void describeOperation(Slot& slot) const;
  void progress();
  bool postSends();
  bool postHead(Slot& slot, bool* posted);
  bool postChunk(Slot& slot, size_t index, bool* posted);
  bool postReceives();
  bool postReceive(Slot& slot, size_t index, bool* posted);
  bool testFlights(std::deque<Flight>& flights);
  void finishSlots();
  Finished testFlush(Flush& flush);
  bool send(Slot& slot, const std::byte* data, size_t bytes, core::MemoryHandle* memory, int tag,
            bool* posted);
  bool fail(const std::string& why);
  bool loseTree(const std::string& why);
  bool hearAlarm();

  Membership membership_;
  const uint32_t rank_;
  const uint32_t ranks_;
  const size_t chunkBytes_;
  Staging heads_;
  core::MemoryHandle* headMemory_ = nullptr;
  std::vector<Slot> slots_;
  FlushTable flushes_{this};
  std::deque<Flight> outgoing_;  // in their order, and so below
  std::deque<Flight> incoming_;
  uint64_t next_ = 0;       // sequence number of the next operation
  uint64_t oldest_ = 0;     // that is not done
  uint64_t sending_ = 0;    // whose chunks leave now
  uint64_t receiving_ = 0;  // whose receives are posted now
  uint64_t passes_ = 0;
  GroupCounters counters_;
  std::string broken_;
  bool treeLost_ = false;
  MemoryList<TreeMemory> memories_;
};

// The tags of a membership's messages.
constexpr int kHeadTag = 1;
constexpr int kDataTag = 2;
constexpr int kResultTag = 3;

}  // namespace weft::coll
