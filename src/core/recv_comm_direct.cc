// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/log.h"
#include "src/core/posting.h"
#include "src/core/recv_comm.h"

// Direct messages as their receiver sees them. A message's header comes first, within a poll of the queue: it
// names the posted receive that the bytes land in, or, where there is none yet, early memory. `landed` tells
// later that all bytes are there. In between the receive's slot is in no tag's list, but in the comm's of
// those that land: nothing else fills it, and closing waits for it.
namespace weft::core {

uint32_t RecvCommImpl::takeWindow() {
  WindowPool* pool = engine().windows();
  const auto wanted = static_cast<uint32_t>(engine().config().windowKib) << 10;
  if (!pool || wanted == 0 || !peering().takesDirect()) return 0;
  window_.open(pool->take(wanted));
  return window_.granted();
}

// Where to:

// A message without a receive is left to the fabric for a moment where that is possible: mostly the receive
// comes at once, and the message need not be copied.
Place RecvCommImpl::place(const DirectHeader& header, uint64_t length, bool mayWait) {
  ctsRing_.readUpTo(header.ctsRead);
  readAsked_ = false;
  TagState& tag = tags_.at(header.tag);
  ReceiveSlot* slot = findOpen(tag, header.k);
  if (!slot && mayWait && !failed()) return {.later = true};
  makeRoomForWaiting();  // the fabric asks again where memory runs out, so nothing may have changed then
  peering().early().makeRoom();
  if (!window_.arrives(length)) return {.refusal = "it sent more than the window that it was given"};
  engine().counters().directIn++;
  if (!slot) return placeEarly(header, static_cast<uint32_t>(length), nullptr);
  tag.heldUntilPass = engine().pass() + kEagerGap;
  if (eagerInARow_ < kEagerRun) eagerInARow_++;
  if (length > roomFor(*slot)) [[unlikely]] {
    tooLarge(header.tag, header.k, length, roomFor(*slot));
    return drop(length);
  }
  claim(slot, tag, length);
  if (length >= stats::kTakesLong) stats_.begun(slot->record);
  const bool byDriver = slot->memory && !slot->memory->host;  // it left before the sender heard of GPU memory
  if (length > 0 && byDriver) return placeEarly(header, static_cast<uint32_t>(length), slot);
  Place place;
  place.context = landedInSlot(slot->code());
  if (length == 0) return place;
  place.memory = slot->memory->region->rail(peering().lane(0).rail());
  place.offset = slot->memory->offsetOf(slot->data);
  return place;
}

// A message that nobody will receive. Its sender has the room back.
Place RecvCommImpl::drop(uint64_t length) {
  messageArrived();
  window_.matched(length);
  giveBackWindow();
  return {};
}

Place RecvCommImpl::placeEarly(const DirectHeader& header, uint32_t size, ReceiveSlot* slot) {
  TagState& tag = tags_.at(header.tag);
  if (failed()) return drop(size);
  if (!slot && wasHere(tag, header.k)) return {.refusal = "it sent a message that it had sent before"};
  auto begun = peering().early().begin(engine().earlyMemory(), this, header.tag, header.k, size);
  if (!begun) {
    endByUs(begun.takeError());
    return drop(size);
  }
  EarlyMessages::Early& early = peering().early().at(*begun);
  early.slot = slot;
  if (!slot) addWaiting(tag, {*begun, true, header.k, size});
  engine().counters().directEarly++;
  return {early.block.region()->rail(peering().lane(0).rail()), early.block.offset(),
          landedEarly(peering().number(), *begun), nullptr};
}

// A slot that a message is coming for:

// From the tag's list to that of those that land.
void RecvCommImpl::claim(ReceiveSlot* slot, TagState& tag, uint64_t length) {
  if (slot->state == SlotState::advertised) ctsRing_.overtaken(slot->position, slot->ctsSequence, slot->lane);
  unlink(slot, tag);
  land(slot, length);
}

// Its memory is in use until all has landed.
void RecvCommImpl::land(ReceiveSlot* slot, uint64_t length) {
  if (slot->memory) slot->memory->inUse++;
  slot->state = SlotState::landing;
  slot->received = length;
  slot->previous = nullptr;
  slot->next = landing_;
  if (landing_) landing_->previous = slot;
  landing_ = slot;
  landingCount_++;
}

void RecvCommImpl::unland(ReceiveSlot* slot) {
  (slot->previous ? slot->previous->next : landing_) = slot->next;
  if (slot->next) slot->next->previous = slot->previous;
  landingCount_--;
  if (slot->memory) slot->memory->inUse--;
}

// The comm ends: what still lands finds nobody. Its bytes can land until the lanes are cut.
void RecvCommImpl::dropLanding() {
  while (ReceiveSlot* slot = landing_) {
    unland(slot);
    letGoOf(slot);
  }
}

// All is here:

void RecvCommImpl::directLanded(ReceiveSlot* slot) {
  finishLanding(slot, stats::Way::direct);
  messageArrived();
}

void RecvCommImpl::finishLanding(ReceiveSlot* slot, stats::Way way) {
  const uint64_t bytes = slot->received;
  unland(slot);
  fulfil(slot, bytes, way);
  window_.matched(bytes);
  giveBackWindow();
}

void RecvCommImpl::earlyLanded(uint32_t index) {
  if (peering().early().at(index).slot) fillFromEarly(index);
  messageArrived();
}

// One that does not fit has ended the comm, whose closing lets go of the slot.
void RecvCommImpl::fillFromEarly(uint32_t index) {
  const EarlyMessages::Early& early = peering().early().at(index);
  ReceiveSlot* slot = early.slot;
  EagerHeader header;
  header.tag = early.tag;
  header.k = early.k;
  header.size = early.size;
  const bool fits = fill(*slot, header, early.block.data());
  peering().early().release(index);
  if (fits) finishLanding(slot, stats::Way::spilled);
}

// Its receive is posted. Where the bytes are still coming the receive waits with them.
void RecvCommImpl::takeEarly(uint32_t index, ReceiveSlot* slot) {
  EarlyMessages::Early& early = peering().early().at(index);
  early.slot = slot;
  land(slot, early.size);
  if (early.state == EarlyMessages::State::here) fillFromEarly(index);
}

// The sender hears when a quarter of its window is free again: often enough that it need not wait, seldom
// enough that it costs little.
void RecvCommImpl::giveBackWindow() {
  if (!window_.due() || !life_.is(Stage::open) || peering().halted()) return;
  const MessageLabel label = labelOf(WindowReturn{remoteNumber_, window_.tell()});
  Work work;
  work.op = Opcode::message;
  work.imm = label.imm;
  work.remote = label.words;
  Lane& lane = peering().lane(0);
  peering().aside(&work, lane);
  peering().submit(lane, work, true);
}

// Shared memory took the place of the lane that the window was for.
void RecvCommImpl::dropWindow() {
  if (window_.granted() == 0) return;
  engine().windows()->giveBack(window_.granted());
  window_ = WindowIn();
}

}  // namespace weft::core
