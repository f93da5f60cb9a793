// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <cerrno>

#include "src/base/log.h"
#include "src/core/engine.h"
#include "src/core/recv_comm.h"
#include "src/core/send_comm.h"

// The engine's poll pass: completions in, clear-to-send lines and bursts out.
namespace weft::core {

void Engine::progress() {
  constexpr int kMostBatches = 8;  // then other comms' callers get their turn
  now_ = options_.clock->now();
  pass_++;
  counters_.polls++;
  for (size_t rail = 0; rail < rails_.size(); rail++) {
    for (int i = 0; i < kMostBatches; i++) {
      const size_t n = rails_[rail].queue->poll(completions_);
      for (size_t j = 0; j < n; j++) dispatch(rail, completions_[j]);
      if (n < completions_.size()) break;
    }
  }
  if (wantsAfterPoll_) [[unlikely]]
    afterPoll();
  flush();
}

void Engine::drain(size_t rail) {
  constexpr int kMostBatches = 1 << 16;  // a queue has an end
  for (int i = 0; i < kMostBatches; i++) {
    const size_t n = rails_[rail].queue->poll(completions_);
    for (size_t j = 0; j < n; j++) dispatch(rail, completions_[j]);
    if (n < completions_.size()) break;
  }
}

void Engine::afterPoll() {
  wantsAfterPoll_ = false;
  for (size_t i = 0; i < peerings_.size(); i++) {
    if (peerings_[i] && peerings_[i]->failover()) peerings_[i]->failover()->afterPoll();
  }
}

void Engine::flushQueued() {
  for (size_t i = 0; i < lineWriters_.size();) {
    if (lineWriters_[i]->writeLines()) {
      i++;
    } else {
      lineWriters_[i] = lineWriters_.back();
      lineWriters_.pop_back();
    }
  }
  for (size_t i = 0; i < flushQueue_.size();) {
    if (flushQueue_[i]->flush(now_)) {
      i++;
    } else {
      flushQueue_[i] = flushQueue_.back();
      flushQueue_.pop_back();
    }
  }
}

void Engine::dispatch(size_t rail, const Completion& completion) {
  switch (completion.kind) {
    case CompletionKind::sent:
      return onSent(rail, completion);
    case CompletionKind::notified:
      return onNotified(completion);
    case CompletionKind::connected:
    case CompletionKind::retired:
    case CompletionKind::broken:
      return onLaneEvent(rail, completion);
  }
}

Lane* Engine::findLane(const Endpoint* endpoint, Peering** owner) {
  *owner = nullptr;
  for (auto& lane : flushLanes_) {
    if (&lane->endpoint() == endpoint) return lane.get();
  }
  for (auto& peering : peerings_) {
    if (!peering) continue;
    if (Lane* lane = peering->laneOf(endpoint)) {
      *owner = peering.get();
      return lane;
    }
  }
  return nullptr;
}

void Engine::onLaneEvent(size_t rail, const Completion& completion) {
  Peering* owner = nullptr;
  Lane* lane = findLane(completion.source, &owner);
  if (!lane) return;  // of an endpoint that is gone
  const std::string why = completion.ok ? "" : rails_[rail].queue->explain(completion);
  if (!owner) {
    const bool up = completion.kind == CompletionKind::connected && completion.ok;
    lane->setState(up ? LaneState::up : LaneState::dead);
  } else if (completion.kind == CompletionKind::connected) {
    owner->laneConnected(*lane, completion.ok, why);
  } else if (completion.kind == CompletionKind::retired) {
    if (completion.error == EBUSY && owner->failover())
      owner->fail(
          Error(Code::remote, "leaving a rail", owner->where(*lane) + " could not be closed: " + why));
    owner->laneRetired(*lane);
  } else {
    owner->laneFailed(*lane, why.empty() ? "the lane broke" : why);
  }
}

void Engine::onSent(size_t rail, const Completion& completion) {
  const auto kind = static_cast<WorkKind>(completion.context >> 60);
  if (!completion.ok) {
    Peering* owner = nullptr;
    Lane* lane = findLane(completion.source, &owner);
    if (lane && owner && lane->up()) owner->laneFailed(*lane, rails_[rail].queue->explain(completion));
    if (lane && !owner) lane->setState(LaneState::dead);
  }
  if (kind == WorkKind::segment) {
    finishSegment(completion, now_);
  } else if (kind == WorkKind::aside || kind == WorkKind::eagerAgain) {
    const auto large = static_cast<uint32_t>(completion.context);
    const auto number = static_cast<uint32_t>(completion.context >> 32) & 0xffffff;
    Peering* peering = peeringByNumber(number);
    const size_t lane = completion.context >> 56 & 15;
    if (!peering || lane >= peering->laneCount()) return;
    peering->lane(lane).finished(large & kAsideBytes, now_);
    if (kind == WorkKind::eagerAgain && completion.ok) peering->eagerLanded(large >> kAsideBits);
  } else if (kind == WorkKind::flush) {
    const auto index = static_cast<uint32_t>(completion.context);
    Request& request = requests_[index];
    flushLanes_[completion.context >> 56 & 15]->finished(1, now_);
    const auto generation = static_cast<uint16_t>(completion.context >> 32 & 0xffff);
    if (request.kind == RequestKind::flush && request.generation == generation && request.remaining > 0)
      request.remaining--;
  }
}

// Between lane and index sit 4 bits of attempt, 4 of segment and 16 of the request's generation.
void Engine::finishSegment(const Completion& completion, TimePoint now) {
  const auto index = static_cast<uint32_t>(completion.context);
  const auto generation = static_cast<uint16_t>(completion.context >> 32 & 0xffff);
  const size_t segment = completion.context >> 48 & 15;
  Request& request = requests_[index];
  if (request.kind != RequestKind::send || request.generation != generation) return;
  SegmentInFlight& sent = request.segments[segment];
  if (sent.attempt != (completion.context >> 52 & 15) || sent.done) return;
  request.comm->peering().lane(sent.lane).finished(sent.bytes, now);
  if (!completion.ok || request.remaining == 0) return;
  sent.done = true;
  if (--request.remaining == 0) request.comm->asSend()->onSent(&request);
}

void Engine::onNotified(const Completion& completion) {
  const auto note = Note::decode(completion.imm);
  if (!note) {
    counters_.foreignNotes++;
    return;
  }
  if (note->kind == NoteKind::eager) return onEager(*note, completion);
  counters_.segmentsIn++;
  ReceiveSlot* slot = slots_.contains(note->slot) ? &slots_[note->slot] : nullptr;
  if (!slot || slot->state != SlotState::told || slot->generation != note->generation) {
    counters_.staleNotes++;
    return;
  }
  if (!slot->comm->peering().mayNotify(completion.source)) [[unlikely]] {
    counters_.foreignNotes++;
    return;
  }
  slot->comm->onSegment(note->slot, *note, completion.length);
}

void Engine::onEager(const Note& note, const Completion& completion) {
  const uint64_t length = completion.length;
  counters_.eagerIn++;
  Peering* peering = peeringByNumber(note.slot / kEagerSlotsPerPeering);
  const uint32_t slot = note.slot % kEagerSlotsPerPeering;
  const bool theirs = peering && peering->mayNotify(completion.source);
  const std::byte* at = theirs ? peering->eagerArrived(slot) : nullptr;
  EagerHeader header;
  if (!at || !readWhole(at, &header) || length < sizeof header || header.size != length - sizeof header) {
    counters_.foreignNotes++;
    return;
  }
  if (!peering->holdEagerSlot(slot, header.use)) {
    counters_.duplicateNotes++;
    return;
  }
  CommBase* comm = comms_.find(header.comm);
  RecvCommImpl* receiver = comm ? comm->asRecv() : nullptr;
  if (!receiver || &receiver->peering() != peering) {
    counters_.staleNotes++;  // its comm was closed meanwhile
    peering->freeEagerSlot(slot);
    return;
  }
  receiver->onEager(slot, header, at + sizeof header);
}

}  // namespace weft::core
