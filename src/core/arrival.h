// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/base/lines.h"
#include "src/core/recv_comm.h"

// What every arrival goes through, inline in the engine's poll pass. Only inside the engine.
namespace weft::core {

constexpr uint32_t kEagerGap = 64;          // poll passes: tens of microseconds for who polls without a pause
constexpr uint64_t kForBatch = UINT64_MAX;  // instead of a pass: until the sender runs short

// A sender with so much to write does not miss a CTS that comes a little later, together with others. It
// covers a round trip of 4 us at 50 GB/s.
constexpr uint64_t kAheadBytes = 256 << 10;

// As many receives as wait here, and what a round trip takes to use up. A tag's messages come in the order of
// its receives, so the sender needs none of their CTS before it has written to those.
inline bool RecvCommImpl::senderHasEnough(const TagState& tag) const {
  return tag.toldBytes >= kAheadBytes && advertisedCount_ * 2 >= openCount_;
}

// No message will fill it any more. One that was filled before its CTS was written is mostly the oldest of
// them.
inline void RecvCommImpl::unlink(ReceiveSlot* slot, TagState& tag) {
  (slot->previous ? slot->previous->next : tag.first) = slot->next;
  (slot->next ? slot->next->previous : tag.last) = slot->previous;
  openCount_--;
  if (slot->state == SlotState::advertised) {
    advertisedCount_--;
    tag.toldBytes -= slot->capacity;
    engine().budget().giveBack(static_cast<uint32_t>(peering().laneCount()));
    if (waitingForBatch_ > 0 && !senderHasEnough(tag)) batchIsDue();
  } else {
    urgent_ -= slot->holdUntilPass == 0;
    waitingForBatch_ -= slot->holdUntilPass == kForBatch;
    if (!unwritten_.empty() && unwritten_.front() == slot->queuedAs) unwritten_.pop();
  }
  if (slot->memory) slot->memory->inUse--;
}

inline ReceiveSlot* RecvCommImpl::findOpen(const TagState& tag, uint32_t k) {
  ReceiveSlot* slot = tag.first;
  while (slot && slot->k != k) slot = slot->next;
  return slot;
}

inline void RecvCommImpl::completePart(Request* request, size_t part, uint64_t bytes) {
  request->sizes[part] = static_cast<int>(bytes);
  request->remaining--;
  endEvent(request, part, bytes);
}

// Its message is here, and it is in no list any more.
inline void RecvCommImpl::fulfil(ReceiveSlot* slot, uint64_t bytes, stats::Way way) {
  stats_.done(slot->record, bytes, way);
  if (slot->isRequest) [[likely]] {
    slot->received = bytes;
    slot->state = SlotState::filled;
    return;
  }
  completePart(slot->request, slot->part, bytes);
  engine().giveSlot(slot);
}

inline void RecvCommImpl::messageArrived() {
  arrived_++;
  if (hasAll()) [[unlikely]]
    tellReceivedAll();
}

inline bool RecvCommImpl::fill(const ReceiveSlot& slot, const EagerHeader& header, const std::byte* payload) {
  if (header.size > slot.capacity) [[unlikely]] {
    tooLarge(header.tag, header.k, header.size, slot.capacity);
    return false;
  }
  if (slot.memory && !slot.memory->host) [[unlikely]]
    return fillGpu(slot, header, payload);
  if (header.size > 0) [[likely]]
    copyLines(static_cast<std::byte*>(slot.data), payload, header.size);
  return true;
}

[[gnu::always_inline]] inline void RecvCommImpl::onEager(uint32_t eagerSlot, const EagerHeader& header,
                                                         const std::byte* payload) {
  ctsRing_.readUpTo(header.ctsRead);
  readAsked_ = false;
  TagState& tag = tags_.at(header.tag);
  ReceiveSlot* slot = findOpen(tag, header.k);
  if (!slot) return keepWaiting(eagerSlot, header.tag, header.k, header.size);
  eagerUntilPass_ = engine().pass() + kEagerGap;
  if (eagerInARow_ < kEagerRun) eagerInARow_++;
  if (!fill(*slot, header, payload)) [[unlikely]]
    return refuseWaiting(eagerSlot);
  if (slot->state == SlotState::advertised) ctsRing_.overtaken(slot->position, slot->ctsSequence, slot->lane);
  unlink(slot, tag);
  peering().freeEagerSlot(eagerSlot);
  fulfil(slot, header.size, stats::Way::eager);
  messageArrived();
}

}  // namespace weft::core
