// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/recv_comm.h"

// Messages that come before their receive is posted: eager ones wait in their slots of the pool, direct ones
// in early memory.
namespace weft::core {

// A message that was here before, in another use of a slot, is a sender's mistake: counted and dropped. On a
// comm that failed it may be one whose receive was cancelled. The slot serves other comms: it is returned.
void RecvCommImpl::keepWaiting(uint32_t eagerSlot, uint32_t tagNumber, uint32_t k, uint32_t size) {
  TagState& tag = tags_.at(tagNumber);
  if (failed()) return refuseWaiting(eagerSlot);
  if (wasHere(tag, k)) {
    engine().counters().duplicateNotes++;
    return peering().freeEagerSlot(eagerSlot);
  }
  makeRoomForWaiting();
  addWaiting(tag, {eagerSlot, false, k, size});
  messageArrived();
}

// The last one of those that are not behind k. Messages come nearly in the order of k, so it is found from
// the end.
uint32_t RecvCommImpl::lastUpTo(const TagState& tag, uint32_t k) const {
  uint32_t index = tag.waitingLast;
  while (index != kNone && engine().sequences().before(k, waiting_[index].k))
    index = waiting_[index].previous;
  return index;
}

bool RecvCommImpl::wasHere(const TagState& tag, uint32_t k) const {
  const uint32_t same = lastUpTo(tag, k);
  return (same != kNone && waiting_[same].k == k) || engine().sequences().before(k, tag.k);
}

// May fail, and nothing has changed then.
void RecvCommImpl::makeRoomForWaiting() {
  if (waitingFree_ == kNone && waiting_.size() == waiting_.capacity()) waiting_.reserve(2 * waiting_.size());
}

// There is room.
void RecvCommImpl::addWaiting(TagState& tag, Waiting waiting) {
  uint32_t index = waitingFree_;
  if (index == kNone) {
    index = static_cast<uint32_t>(waiting_.size());
    waiting_.emplace_back();
  } else {
    waitingFree_ = waiting_[index].next;
  }
  waiting.previous = lastUpTo(tag, waiting.k);
  waiting.next = waiting.previous == kNone ? tag.waiting : waiting_[waiting.previous].next;
  (waiting.previous == kNone ? tag.waiting : waiting_[waiting.previous].next) = index;
  (waiting.next == kNone ? tag.waitingLast : waiting_[waiting.next].previous) = index;
  waiting_[index] = waiting;
}

RecvCommImpl::Waiting RecvCommImpl::removeFirst(TagState& tag) {
  const uint32_t index = tag.waiting;
  const Waiting first = waiting_[index];
  tag.waiting = first.next;
  (first.next == kNone ? tag.waitingLast : waiting_[first.next].previous) = kNone;
  waiting_[index].next = waitingFree_;
  waitingFree_ = index;
  return first;
}

// It is here as far as its slot and the sender's count are concerned: both are shared with comms that go on,
// and closing waits for the count.
void RecvCommImpl::refuseWaiting(uint32_t eagerSlot) {
  peering().freeEagerSlot(eagerSlot);
  messageArrived();
}

// What memory ran out for neither waits nor fills a receive.
void RecvCommImpl::loseEager(uint32_t eagerSlot) {
  if (peering().eagerIn().holds(eagerSlot)) refuseWaiting(eagerSlot);
}

// The slot's message came before it. No message that waits is older than the next receive.
bool RecvCommImpl::takeWaiting(TagState& tag, ReceiveSlot* slot) {
  if (waiting_[tag.waiting].k != tag.k) return false;
  const Waiting found = removeFirst(tag);
  if (found.early) {
    takeEarly(found.at, slot);
    return true;
  }
  EagerHeader header;
  header.tag = slot->tag;
  header.k = found.k;
  header.size = found.size;
  const std::byte* payload = peering().eagerIn().at(found.at) + sizeof(EagerHeader);
  const bool fits = fill(*slot, header, payload);
  peering().freeEagerSlot(found.at);
  if (fits) {
    fulfil(slot, found.size, stats::Way::eager);
  } else {
    engine().giveSlot(slot);
  }
  return true;
}

// Rare: it left before the sender heard that GPU memory is received into.
bool RecvCommImpl::fillGpu(const ReceiveSlot& slot, const EagerHeader& header, const std::byte* payload) {
  if (header.size == 0) return true;
  const mem::gpu::Driver* driver = engine().regions().driver();
  const int gpu = slot.memory->region->gpu();
  Status copied = driver ? driver->toGpu(gpu, slot.data, payload, header.size)
                         : Error(Code::unavailable, "receiving", "there is no CUDA driver to copy with");
  if (!copied) endByUs(copied.takeError());
  return static_cast<bool>(copied);
}

void RecvCommImpl::dropWaiting() {
  tags_.each([&](uint32_t, TagState& tag) {
    while (tag.waiting != kNone) {
      const Waiting first = removeFirst(tag);
      if (first.early) {
        peering().early().release(first.at);
      } else {
        peering().freeEagerSlot(first.at);
      }
    }
  });
}

}  // namespace weft::core
