// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <array>
#include <cerrno>

#include "src/base/log.h"
#include "src/core/arrival.h"
#include "src/core/engine.h"
#include "src/core/recv_comm.h"
#include "src/core/send_comm.h"

// The engine's poll pass: completions in, clear-to-send lines and bursts out.
namespace weft::core {

void Engine::afterPoll() {
  wantsAfterPoll_ = false;
  for (size_t i = 0; i < peerings_.size(); i++) {
    if (peerings_[i]) peerings_[i]->afterPoll();
  }
}

inline void Engine::writeLines() {
  linesDue_ = UINT64_MAX;
  for (size_t i = 0; i < lineWriters_.size();) {
    if (lineWriters_[i]->writeLines()) {
      linesDue_ = std::min(linesDue_, lineWriters_[i]->linesDue());
      i++;
    } else {
      lineWriters_[i] = lineWriters_.back();
      lineWriters_.pop_back();
    }
  }
}

void Engine::finishPass(bool polledAll) {
  if (wantsAfterPoll_ && polledAll) [[unlikely]]
    afterPoll();
  flush();
}

bool Engine::flushOwnLanes() {
  bool more = false;
  for (auto& lane : flushLanes_) {
    if (!lane || !lane->hasQueued()) continue;
    more |= lane->state() == LaneState::connecting || (lane->up() && lane->flush(now()));
  }
  return more;
}

void Engine::flushQueued() {
  due_ = 0;  // until everything was looked at: what comes meanwhile is looked at here
  if (linesDue_ <= pass_) writeLines();
  for (size_t i = 0; i < flushQueue_.size();) {
    if (flushQueue_[i]->flush(now())) {
      i++;
    } else {
      flushQueue_[i] = flushQueue_.back();
      flushQueue_.pop_back();
    }
  }
  const bool ownWait = flushOwnLanes();
  due_ = flushQueue_.empty() && !ownWait && !wantsAfterPoll_ ? linesDue_ : 0;
}

Lane* Engine::findLane(const Endpoint* endpoint, Peering** owner) {
  *owner = nullptr;
  for (auto& lane : flushLanes_) {
    if (lane && &lane->endpoint() == endpoint) return lane.get();
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
    const bool unread = !up && lane->dropHeld();
    lane->setState(up ? LaneState::up : LaneState::dead);
    if (unread) failFlushes(*lane, why);
  } else if (completion.kind == CompletionKind::connected) {
    owner->laneConnected(*lane, completion.ok, why);
  } else if (completion.kind == CompletionKind::retired) {
    if (completion.error != EBUSY || !cutOff(*owner, *lane, why)) owner->laneRetired(*lane);
  } else {
    owner->laneFailed(*lane, why.empty() ? "the lane broke" : why);
  }
}

// The lane cannot be fenced without those of other peers on its card. Where all of them have another rail
// that is what happens, as this peering cannot go on before; else it is this peering that ends.
bool Engine::cutOff(Peering& owner, Lane& lane, const std::string& why) {
  if (!owner.failover()) return false;
  const auto survives = [&](const auto& peering) {
    return !peering || peering->comms == 0 || peering->ending() || peering->upWithout(lane.rail());
  };
  const bool all = std::all_of(peerings_.begin(), peerings_.end(), survives);
  if (!owner.ending() && all && lane.endpoint().cut()) return true;
  owner.end({Ending::By::us,
             Error(Code::remote, "leaving a rail", owner.where(lane) + " could not be closed: " + why)});
  return false;
}

void Engine::onFailed(size_t rail, const Completion& completion) {
  Peering* owner = nullptr;
  Lane* lane = findLane(completion.source, &owner);
  if (lane && owner && lane->up()) owner->laneFailed(*lane, rails_[rail].queue->explain(completion));
  if (lane && !owner) lane->setState(LaneState::dead);
}

void Engine::onSent(const Completion& completion) {
  const auto kind = static_cast<WorkKind>(completion.context >> 60);
  if (kind == WorkKind::segment) return finishSegment(completion);
  if (kind == WorkKind::aside) return (void)asideFinished(completion);
  if (kind == WorkKind::eagerAgain || kind == WorkKind::credit) return landed(completion);
  if (kind == WorkKind::flush) flushFinished(completion);
}

inline Peering* Engine::asideFinished(const Completion& completion) {
  const auto large = static_cast<uint32_t>(completion.context);
  Peering* peering = peeringByNumber(static_cast<uint32_t>(completion.context >> 32) & 0xffffff);
  const size_t lane = completion.context >> 56 & 15;
  Lane* by = peering ? peering->laneAt(lane) : nullptr;
  if (!by) [[unlikely]]
    return nullptr;
  by->finished(large & kAsideBytes, *this);
  return peering;
}

// An aside of which the peering wants to hear.
void Engine::landed(const Completion& completion) {
  Peering* peering = asideFinished(completion);
  if (!peering || !completion.ok) return;
  if (static_cast<WorkKind>(completion.context >> 60) == WorkKind::credit) return peering->creditLanded();
  peering->eagerLanded(static_cast<uint32_t>(completion.context) >> kAsideBits);
}

void Engine::flushFinished(const Completion& completion) {
  Request& request = requests_[static_cast<uint32_t>(completion.context)];
  flushLanes_[completion.context >> 56 & 15]->finished(1, *this);
  const auto generation = static_cast<uint16_t>(completion.context >> 32 & 0xffff);
  if (request.kind != RequestKind::flush || request.generation != generation || request.remaining == 0)
    return;
  if (completion.ok) [[likely]]
    request.remaining--;
}

// A read that failed says nothing of what it was to make visible: it is never done, and ends its comm.
void Engine::flushFailed(size_t rail, const Completion& completion) {
  const auto kind = static_cast<WorkKind>(completion.context >> 60);
  if (kind != WorkKind::flush) return;
  const auto generation = static_cast<uint16_t>(completion.context >> 32 & 0xffff);
  Request& request = requests_[static_cast<uint32_t>(completion.context)];
  if (request.kind != RequestKind::flush || request.generation != generation) return;
  const Lane& lane = *flushLanes_[completion.context >> 56 & 15];
  endFlush(&request, lane, rails_[rail].queue->explain(completion));
}

// Between lane and index sit 4 bits of attempt, 4 of segment and 16 of the request's generation.
inline void Engine::finishSegment(const Completion& completion) {
  const auto index = static_cast<uint32_t>(completion.context);
  const auto generation = static_cast<uint16_t>(completion.context >> 32 & 0xffff);
  const size_t segment = completion.context >> 48 & 15;
  Request& request = requests_[index];
  if (request.kind != RequestKind::send || request.generation != generation) [[unlikely]]
    return;
  SegmentInFlight& sent = request.segments[segment];
  if (sent.attempt != (completion.context >> 52 & 15) || sent.done) [[unlikely]]
    return;
  request.comm->peering().lane(sent.lane).finished(sent.bytes, *this);
  if (!completion.ok || request.remaining == 0) [[unlikely]]
    return;
  sent.done = true;
  if (--request.remaining == 0) request.comm->asSend()->onSent(&request);
}

void Engine::onEager(uint32_t number, const Completion& completion) {
  const uint64_t length = completion.length;
  counters_.eagerIn++;
  Peering* peering = peeringByNumber(number / kEagerSlotsPerPeering);
  const uint32_t slot = number % kEagerSlotsPerPeering;
  const bool theirs = peering && peering->mayNotify(completion.source);
  const std::byte* at = theirs ? peering->eagerArrived(slot) : nullptr;
  EagerHeader header;
  if (!at || !readHeader(at, &header) || length < sizeof header || header.size != length - sizeof header ||
      !peering->mayArriveEagerly(header.size))  // on some fabrics the writer says how long its write was
      [[unlikely]] {
    counters_.foreignNotes++;
    return;
  }
  if (!peering->holdEagerSlot(slot, header.use)) [[unlikely]] {
    counters_.duplicateNotes++;
    return;
  }
  CommBase* comm = comms_.find(header.comm);
  RecvCommImpl* receiver = comm ? comm->asRecv() : nullptr;
  if (!receiver || &receiver->peering() != peering) [[unlikely]] {
    counters_.staleNotes++;  // its comm was closed meanwhile
    peering->freeEagerSlot(slot);
    return;
  }
  receiver->onEager(slot, header, at + sizeof header);
}

void Engine::onNotified(const Completion& completion) {
  const ReceivedNote note(completion.imm);
  if (note.kind() == NoteKind::eager && note.whole()) return onEager(note.slot(), completion);
  if (note.kind() == NoteKind::eager || !note.possible()) [[unlikely]] {
    counters_.foreignNotes++;
    return;
  }
  counters_.segmentsIn++;
  ReceiveSlot* slot = slots_.contains(note.slot()) ? &slots_[note.slot()] : nullptr;
  if (!slot || slot->state != SlotState::told || slot->generation != note.generation()) [[unlikely]] {
    counters_.staleNotes++;
    return;
  }
  if (!slot->comm->peering().mayNotify(completion.source)) [[unlikely]] {
    counters_.foreignNotes++;
    return;
  }
  slot->comm->onSegment(*slot, note, completion.length);
}

void Engine::onRare(size_t rail, const Completion& completion) {
  if (completion.kind != CompletionKind::sent) return onLaneEvent(rail, completion);
  onFailed(rail, completion);
  flushFailed(rail, completion);
  onSent(completion);
}

void Engine::dispatchAll(size_t rail, size_t n, int mostBatches) {
  for (;;) {
    for (const Completion *next = completions_.data(), *end = next + n; next != end; next++)
      dispatch(rail, *next);
    if (n < completions_.size() || --mostBatches == 0) return;
    n = queues_[rail]->poll(completions_);
  }
}

// From where the last pass ended.
bool Engine::pollSeveral(int mostBatches) {
  Queue* const* queues = queues_.data();
  const size_t rails = queues_.size();
  for (size_t left = rails; left > 0; left--) {
    const size_t rail = railTurn_;
    railTurn_ = rail + 1 < rails ? rail + 1 : 0;
    const size_t n = queues[rail]->poll(completions_);
    if (n == 0) continue;
    handOut(rail, n, mostBatches);
    if (!wantsAfterPoll_) return left == 1;
  }
  return true;
}

void Engine::drain(size_t rail) {
  constexpr int kMostBatches = 1 << 16;  // a queue has an end
  pollRail(rail, *queues_[rail], kMostBatches);
}

}  // namespace weft::core
