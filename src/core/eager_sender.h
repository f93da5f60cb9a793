// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "src/core/lane.h"
#include "src/core/wire.h"

// The sending half of a peering's eager messages: which slots of the peer's pool are free, how often each was
// used, by which lane each left last, and the staging that messages are written from, slot by slot. What the
// peer has done with a slot it says in its credit record. Knows no fabric; owned by its Peering and used only
// by who has entered the engine.
namespace weft::core {

class EagerSender {
 public:
  // Who has the memory.
  class Source {
   public:
    // Staging for all slots; asked for when the first one is to be taken. Null: there is none now.
    virtual std::byte* takeStaging() = 0;

   protected:
    ~Source() = default;
  };

  explicit EagerSender(Source& source) : source_(source) {}

  // The peer offers so many slots for messages of at most `most` bytes, and writes its credit record for our
  // peering `number` to `credits`.
  void open(uint32_t slots, uint32_t slotBytes, uint32_t most, uint32_t number, const std::byte* credits) {
    slots_ = slots < kEagerSlotsPerPeering ? slots : kEagerSlotsPerPeering;
    slotBytes_ = slotBytes;
    room_ = slots_ == 0 || most == 0 ? 0 : size_t{most} + 1;
    number_ = number;
    credits_ = credits;
  }

  bool sends(size_t bytes) const { return bytes < room_; }
  bool hasSlot() { return freeSlots() != 0 || refill(); }
  int takeSlot() {  // -1: no credit, or no staging
    if (freeSlots() == 0 && !refill()) [[unlikely]]
      return -1;
    const int slot = std::countr_zero(freeSlots());
    used_ ^= uint64_t{1} << slot;
    uses_[static_cast<size_t>(slot)]++;
    return slot;
  }
  uint32_t use(int slot) const { return uses_[static_cast<size_t>(slot)] - 1; }  // of a taken one
  std::byte* staging(int slot) const { return staging_ + static_cast<size_t>(slot) * slotBytes_; }
  uint8_t leftBy(int slot) const { return lanes_[static_cast<size_t>(slot)]; }
  void leftBy(int slot, uint8_t lane) { lanes_[static_cast<size_t>(slot)] = lane; }

  // Fail-over:
  // What left from there by this fenced lane is there, whenever its credit comes: the lane's next incarnation
  // has nothing to do with it.
  void accounted(int slot, uint8_t lane) {
    uint8_t& by = lanes_[static_cast<size_t>(slot)];
    if (by == lane) by = kNoLane;
  }
  // It was lost with its lane, and is written again unless its credit is here by now: false.
  bool beginAgain(int slot) {
    learnCredits();
    if (((used_ ^ freed_) >> slot & 1) == 0) return false;
    writtenAgain_ |= uint64_t{1} << slot;
    return true;
  }
  void landed(uint32_t slot) { writtenAgain_ &= ~(uint64_t{1} << slot); }  // what was written again
  // Slots that left by this fenced lane, and have no credit.
  template <class Visit>
  void eachUnreturned(uint8_t lane, Visit visit) {
    learnCredits();
    const uint64_t out = used_ ^ freed_;
    for (int slot = 0; slot < static_cast<int>(kEagerSlotsPerPeering); slot++) {
      if (uses_[static_cast<size_t>(slot)] == 0 || lanes_[static_cast<size_t>(slot)] != lane) continue;
      landed(static_cast<uint32_t>(slot));
      if (out >> slot & 1) visit(slot);
    }
  }

 private:
  uint64_t freeSlots() const { return ~((used_ ^ freed_) | writtenAgain_) & mask_; }
  [[gnu::noinline]] bool refill();  // false: still none
  void learnCredits();

  Source& source_;
  size_t room_ = 0;            // what is smaller may leave eagerly; 0: the peer takes none
  uint64_t mask_ = 0;          // the slots there are, once there is staging for them
  uint64_t used_ = 0;          // bit flips at each use
  uint64_t freed_ = 0;         // as the peer last told
  uint64_t writtenAgain_ = 0;  // and not known to have landed
  std::byte* staging_ = nullptr;
  uint32_t slotBytes_ = 0;
  uint32_t slots_ = 0;
  std::array<uint32_t, kEagerSlotsPerPeering> uses_{};  // how often each was taken
  std::array<uint8_t, kEagerSlotsPerPeering> lanes_{};  // what each left by last
  const std::byte* credits_ = nullptr;
  uint32_t number_ = 0;
  uint32_t creditsRead_ = 0;  // sequence of the last credit record believed
};

}  // namespace weft::core
