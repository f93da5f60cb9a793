// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>

#include "src/coll/backend.h"
#include "src/coll/join.h"

// A rank's end of an aggregation tree. It sends its vector to its daemon in chunks, each once, and receives
// the chunks of the result. Operations and their chunks go in order, several at a time. The receives that the
// daemon has posted bound the chunks in flight.
// The ring owns it; threads as in backend.h.
namespace weft::coll {

// A registration on both comms of the membership.
class TreeMemory final : public GroupMemory {
 public:
  core::MemoryHandle* sending = nullptr;
  core::MemoryHandle* receiving = nullptr;
  bool host = true;
};

class TreeBackend final : public Backend {
 public:
  // `chunkBytes` is the group's, the same on all ranks.
  static Result<std::unique_ptr<TreeBackend>> create(Membership membership, uint32_t rank, size_t chunkBytes);
  TreeBackend(Membership membership, uint32_t rank, size_t chunkBytes);

  Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) override;
  void deregisterMemory(GroupMemory& memory) override;
  bool isReachable() const override { return membership_.linked(); }
  Begun begin(uint64_t turn, const Operation& operation) override;
  Step advance(uint64_t turn) override;
  Failure failure() override { return failure_; }
  Failure loss() const override;
  core::Posted flush(const void* data, size_t bytes, GroupMemory& memory) override;
  Failure flushFailure() override;
  void halt() override { enter(State::halted); }
  Bond& bond() override { return bond_; }
  uint64_t bytesSent() const override { return bytesSent_; }
  void part() override { membership_.part(); }
  void close(const Clock& clock) override { membership_.leave(clock); }
  void disconnect() override { membership_.pipe->close(); }
  void keep(const std::shared_ptr<const void>& memory) override { membership_.pipe->keep(memory); }

 private:
  // Slots move only in state moving. A state never goes back.
  enum class State : uint8_t { moving, failed, halted };
  void enter(State next) {
    if (next > state_) state_ = next;
  }

  // An operation. free -> running (begin) -> done (all its messages have left and come) -> free (the ring has
  // been told).
  struct Slot {
    enum class State : uint8_t { free, running, done };
    void enter(State next) { state = next; }
    State state = State::free;
    Operation operation;
    OperationHead head;
    size_t chunks = 0;
    size_t sent = 0;     // messages posted: the head, then the chunks
    size_t asked = 0;    // receives posted for chunks of the result
    size_t flights = 0;  // sends and receives that are not done
  };
  // A send or a receive that was posted.
  struct Flight {
    core::Request* request;
    size_t bytes;
    Slot* slot;
    bool sends;
  };

  Slot& slotOf(uint64_t turn) { return slots_[turn % kOperations]; }
  // The place of the slot's head in heads_, with room for inline data.
  std::byte* headOf(const Slot& slot) const;
  Span chunkOf(const Slot& slot, size_t index) const;
  // Fills in the head that announces the operation, and the number of chunks.
  void describe(Slot& slot, uint64_t turn) const;
  void pass();
  // False of these: the connection failed. `posted` false with true: no room now, a later pass tries again.
  bool postSends();
  bool postHead(Slot& slot, bool* posted);
  bool postChunk(Slot& slot, size_t index, bool* posted);
  bool postReceives();
  bool postReceive(Slot& slot, size_t index, bool* posted);
  bool testFlights(std::deque<Flight>& flights);
  void finishSlots();
  bool send(Slot& slot, const std::byte* data, size_t bytes, core::MemoryHandle* memory, int tag,
            bool* posted);

  Membership membership_;
  const uint32_t rank_;
  const size_t chunkBytes_;  // of the vector or window, per message
  Bond bond_;
  Staging heads_;  // the heads of all slots
  core::MemoryHandle* headMemory_ = nullptr;
  std::vector<Slot> slots_;
  std::deque<Flight> outgoing_;  // in the order of the operations, as incoming_
  std::deque<Flight> incoming_;
  State state_ = State::moving;
  Failure failure_;         // in state failed
  uint64_t next_ = 0;       // behind the youngest turn that was begun
  uint64_t oldest_ = 0;     // no slot before this turn's is running
  uint64_t sending_ = 0;    // the turn whose head and chunks are being sent
  uint64_t receiving_ = 0;  // the turn whose receives are being posted
  uint64_t bytesSent_ = 0;
};

// The tags of a membership's messages.
constexpr int kHeadTag = 1;
constexpr int kDataTag = 2;
constexpr int kResultTag = 3;

}  // namespace weft::coll
