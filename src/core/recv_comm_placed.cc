// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/log.h"
#include "src/core/posting.h"
#include "src/core/recv_comm.h"

// Placed messages as their receiver sees them (send_comm_placed.cc has the other end). Its owner opens memory
// to the sender, and posts receives without a place: the CTS of each says that the sender may write to
// whatever was opened. So CTS are there before there is a message, and their messages are counted, accounted
// for after a rail is lost, and closed like any other. Memory that is deregistered is shut first: the sender
// answers with which message it places next, and the memory stays until all before that one are here. Only
// inside the engine.
namespace weft::core {

// What is opened:

// Behind the announcement, by the same link, so the sender knows the memory when it hears of this. Where
// small messages leave directly (DeviceInfo::messages) placing would cost a call of the system more.
bool RecvCommImpl::openMemory(MemoryHandle* handle, const void* at, size_t bytes, uint32_t number) {
  EngineEntry in(engine(), EngineEntry::tryOnce);
  if (!in) return false;
  if (handle->door != Door::never) return handle->door == Door::open;
  if (!life_.is(Stage::open) || peering().halted() || peering().takesDirect()) return false;
  const auto lanes = static_cast<uint32_t>(peering().laneCount());
  if (standing_ == 0) {
    if (!engine().budget().takeStanding(kPlacedAtOnce * lanes)) return false;
    standing_ = kPlacedAtOnce * lanes;
  }
  handle->openedAs = number;
  handle->enter(Door::open);
  peering().tell(MessageType::openMemory, OpenMemoryMessage{remoteNumber_, number, handle->announcement->id,
                                                            handle->offsetOf(at), bytes});
  return true;
}

void RecvCommImpl::shutMemory(MemoryHandle* handle) {
  EngineEntry in(engine(), EngineEntry::wait);
  startShutting(handle);
}

void RecvCommImpl::startShutting(MemoryHandle* handle) {
  if (handle->door != Door::open) return;
  handle->enter(Door::closing);
  peering().tell(MessageType::shutMemory,
                 ShutMemoryMessage{remoteNumber_, handle->openedAs, static_cast<uint32_t>(placedTag_), 0});
}

void RecvCommImpl::takeShut(const ShutMemoryMessage& message) {
  for (MemoryHandle* handle : handles_) {
    if (handle->door != Door::closing || handle->openedAs != message.number) continue;
    handle->placedBefore = message.k;
    handle->enter(Door::answered);
  }
}

// No receive is open for a placed message before that one.
bool RecvCommImpl::placedUpTo(uint32_t k) {
  bool all = true;
  eachOpen([&](const ReceiveSlot& slot) {
    all = all && !(slot.placed && engine().sequences().before(slot.k, k));
  });
  return all;
}

// A peer whose engine is closed writes nothing more, and a sender that has settled nothing but what it says.
bool RecvCommImpl::landsNoMore(MemoryHandle* handle) {
  if (!handle->mayBePlacedIn()) return true;
  const bool arrived = handle->door == Door::answered && placedUpTo(handle->placedBefore);
  const bool settled = other_ != OtherEnd::open && hasAll();
  if (!arrived && !settled && !peering().remoteGone()) return false;
  handle->enter(Door::shut);
  return true;
}

bool RecvCommImpl::isShut(MemoryHandle* handle) {
  EngineEntry in(engine(), EngineEntry::wait);
  return landsNoMore(handle);
}

// False: the sender did not answer in time, and its lanes must be cut.
bool RecvCommImpl::waitUntilShut(MemoryHandle* handle) {
  {
    EngineEntry in(engine(), EngineEntry::wait);
    startShutting(handle);
    if (landsNoMore(handle)) return true;
  }
  return waitFor([&] { return landsNoMore(handle); });
}

// What is posted:

// In the place of its CTS's budget there is what openMemory took.
Posted RecvCommImpl::irecvPlaced(size_t most, int tag) {
  Engine& engine = this->engine();
  if (!engine.tryEnter()) return {!failed(), nullptr};
  const EngineStay inside(engine);
  if (failed()) return {false, nullptr};
  const bool mayPost = standing_ > 0 && placedOpen_ < kPlacedAtOnce && life_.is(Stage::open);
  if (!mayPost || peering().halted()) return {};
  ReceiveSlot* slot = engine.takeSlot();
  if (!slot) {
    failPosting(true);
    return {false, nullptr};
  }
  placedTag_ = tag;
  TagState& of = tags_.at(static_cast<uint32_t>(tag));
  prepare(slot, {nullptr, most, tag, nullptr, nullptr}, of.k);
  of.k = engine.sequences().next(of.k);
  slot->part = 0;
  slot->isRequest = true;
  slot->request = nullptr;
  slot->placed = true;
  slot->mayComeEagerly = false;
  slot->queuedAs = 0;
  slot->holdUntilPass = 1;  // it waits in no queue of those that have such times
  append(of, slot);
  placedOpen_++;
  placedQueue_[placedQueued_++] = slot;
  if (placedDue()) lookAtCtsFrom(engine.pass());
  return {true, requestOf(slot)};
}

// The sender has closed, and nobody waits for a receive that stands. What it had sent may be on its way.
void RecvCommImpl::letGoOfPlaced() {
  if (!hasAll() && !leftUnanswered()) return;
  placedQueued_ = 0;
  tags_.each([&](uint32_t, TagState& tag) {
    while (tag.first && tag.first->placed) {
      ReceiveSlot* slot = tag.first;
      unlink(slot, tag);
      letGoOf(slot);
    }
  });
}

void RecvCommImpl::giveBackStanding() {
  engine().budget().giveBackStanding(standing_);
  standing_ = 0;
}

}  // namespace weft::core
