// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/arrival.h"
#include "src/core/recv_comm.h"

// Eager messages that come before their receive is posted: they wait in their slots of the pool.
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
  addWaiting(tag, {eagerSlot, false, k, size, kNone});
  messageArrived();
}

bool RecvCommImpl::wasHere(const TagState& tag, uint32_t k) const {
  uint16_t same = tag.waiting;
  while (same != kNone && waiting_[same].k != k) same = waiting_[same].next;
  return same != kNone || engine().sequences().before(k, tag.k);
}

void RecvCommImpl::addWaiting(TagState& tag, Waiting waiting) {
  uint16_t index;
  if (waitingFree_.empty()) {
    index = static_cast<uint16_t>(waiting_.size());
    waiting_.emplace_back();
  } else {
    index = waitingFree_.back();
    waitingFree_.pop_back();
  }
  waiting.next = tag.waiting;
  waiting_[index] = waiting;
  tag.waiting = index;
}

// It is here as far as its slot and the sender's count are concerned: both are shared with comms that go on,
// and closing waits for the count.
void RecvCommImpl::refuseWaiting(uint32_t eagerSlot) {
  peering().freeEagerSlot(eagerSlot);
  messageArrived();
}

// The slot's message came before it.
bool RecvCommImpl::takeWaiting(TagState& tag, ReceiveSlot* slot) {
  uint16_t* link = &tag.waiting;
  while (*link != kNone && waiting_[*link].k != tag.k) link = &waiting_[*link].next;
  if (*link == kNone) return false;
  const uint16_t index = *link;
  const Waiting found = waiting_[index];
  *link = found.next;
  waitingFree_.push_back(index);
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
    for (uint16_t i = tag.waiting; i != kNone; i = waiting_[i].next) {
      if (waiting_[i].early) {
        peering().early().release(waiting_[i].at);
      } else {
        peering().freeEagerSlot(waiting_[i].at);
      }
    }
    tag.waiting = kNone;
  });
}

}  // namespace weft::core
