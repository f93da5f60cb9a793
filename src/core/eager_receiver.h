// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>

#include "src/core/wire.h"

// The receiving half of a peering's eager messages: the pool that the peer writes into, which of its slots
// hold a message, and the credit record that tells the peer which are free again. Of two records under way
// the older one could land last and hide what the newer one told, so one is under way at a time. Knows no
// fabric; owned by its Peering and used only by who has entered the engine.
namespace weft::core {

class EagerReceiver {
 public:
  void open(const std::byte* pool, uint32_t slots, uint32_t slotBytes) {
    pool_ = pool;
    slots_ = slots;
    slotBytes_ = slotBytes;
    room_ = slots > 0 ? slotBytes - sizeof(EagerHeader) + 1 : 0;
  }

  uint32_t slots() const { return slots_; }
  uint32_t slotBytes() const { return slotBytes_; }
  bool mayArrive(size_t bytes) const { return bytes < room_; }
  const std::byte* at(uint32_t slot) const {  // null: there is no such slot
    return slot < slots_ ? pool_ + size_t{slot} * slotBytes_ : nullptr;
  }
  // False: not the use that comes next, whether the notification or the whole write comes again; or one of a
  // slot that still holds the last one's message.
  bool hold(uint32_t slot, uint32_t use) {
    if (use != uses_[slot] || ((use ^ freed_ >> slot) & 1) != 0) return false;
    uses_[slot]++;
    return true;
  }
  bool holds(uint32_t slot) const { return ((uses_[slot] ^ freed_ >> slot) & 1) != 0; }
  bool free(uint32_t slot) {  // true: the peer should hear of it
    freed_ ^= uint64_t{1} << slot;
    return ++freedUntold_ * 2 >= slots_;
  }
  bool misses(uint32_t slot, uint32_t use, uint32_t mask) const {  // a use that a sender asks for
    return slot < slots_ && ((uses_[slot] ^ use) & mask) == 0;
  }

  // Whether to write a record now; `again`: also if it says nothing new. One that must wait is remembered.
  bool startCredit(bool again) {
    if (slots_ == 0 || (freedUntold_ == 0 && !again)) return false;
    if (credit_ != Credit::none) {
      credit_ = Credit::anotherDue;
      return false;
    }
    credit_ = Credit::underWay;
    freedUntold_ = 0;
    return true;
  }
  CreditRecord record(uint32_t peering) {  // the next one
    CreditRecord record;
    record.sequence = ++sequence_;
    record.peering = peering;
    record.freed = freed_;
    seal(&record);
    return record;
  }
  void creditLeftBy(uint8_t lane) { lane_ = lane; }
  bool creditLanded() {  // true: another one is due
    const bool due = credit_ == Credit::anotherDue;
    credit_ = Credit::none;
    return due;
  }
  // What the record carried by this lane is known to have landed, or never will.
  void creditFenced(uint8_t lane) {
    if (lane_ == lane) credit_ = Credit::none;
  }

 private:
  enum class Credit : uint8_t { none, underWay, anotherDue };

  const std::byte* pool_ = nullptr;
  uint32_t slots_ = 0;
  uint32_t slotBytes_ = 0;
  size_t room_ = 0;     // what is smaller may come eagerly; 0: nothing does
  uint64_t freed_ = 0;  // bit flips when a slot is free again
  uint32_t freedUntold_ = 0;
  Credit credit_ = Credit::none;
  uint8_t lane_ = 0;  // of the last record
  uint32_t sequence_ = 0;
  std::array<uint32_t, kEagerSlotsPerPeering> uses_{};  // how often each held a message
};

}  // namespace weft::core
