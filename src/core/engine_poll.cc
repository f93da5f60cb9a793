// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <array>
#include <cerrno>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/engine.h"
#include "src/core/engine_entry.h"
#include "src/core/recv_comm.h"
#include "src/core/send_comm.h"

// The engine's poll pass: completions in, CTS and bursts out.
namespace weft::core {

void Engine::afterPoll() {
  wantsAfterPoll_ = false;
  for (size_t i = 0; i < peerings_.size(); i++) {
    if (peerings_[i]) peerings_[i]->afterPoll();
  }
  stepClosing();
}

inline void Engine::writeAllCts() {
  ctsDue_ = UINT64_MAX;
  for (size_t i = 0; i < ctsWriters_.size();) {
    if (ctsWriters_[i]->writeAllCts()) {
      ctsDue_ = std::min(ctsDue_, ctsWriters_[i]->ctsDue());
      i++;
    } else {
      ctsWriters_[i] = ctsWriters_.back();
      ctsWriters_.pop_back();
    }
  }
}

void Engine::finishPass(bool polledAll) {
  if (wantsAfterPoll_ && polledAll) [[unlikely]]
    afterPoll();
  flush();
}

void Engine::close(CommBase* comm) {
  comm->beginClosing();
  closing_.push_back(comm);
  stepClosing();
}

void Engine::closeOwned(std::unique_ptr<CommBase> comm) {
  CommBase* raw = comm.get();
  owned_.push_back(std::move(comm));
  close(raw);
}

std::vector<std::unique_ptr<CommBase>> Engine::takeClosed() {
  std::vector<std::unique_ptr<CommBase>> closed;
  for (auto& comm : owned_) {
    if (comm->isClosed()) closed.push_back(std::move(comm));
  }
  std::erase(owned_, nullptr);
  return closed;
}

bool Engine::passClosing() {
  std::vector<std::unique_ptr<CommBase>> closed;  // freed after the engine is left
  EngineEntry in(*this, EngineEntry::wait);
  if (!owned_.empty()) progress();
  closed = takeClosed();
  return !owned_.empty();
}

// The comms that are closed, in the order in which that began; as long as there are some, after each pass.
void Engine::stepClosing() {
  if (closing_.empty()) return;
  const MustNotFail nobodyToTell;  // the call that polls may be another comm's
  for (CommBase* comm : closing_) comm->stepClosing();
  std::erase_if(closing_, [](const CommBase* comm) { return comm->isClosed(); });
  cleanUpPeerings();
  if (!closing_.empty()) wantAfterPoll();
}

void Engine::flushQueued() {
  due_ = 0;  // until everything was looked at: what comes meanwhile is looked at here
  if (ctsDue_ <= pass_) writeAllCts();
  for (size_t i = 0; i < flushQueue_.size();) {
    if (flushQueue_[i]->flush(now())) {
      i++;
    } else {
      flushQueue_[i] = flushQueue_.back();
      flushQueue_.pop_back();
    }
  }
  const bool ownWait = flushLanes_.hasQueued() && flushLanes_.flush(now());
  due_ = flushQueue_.empty() && !ownWait && !wantsAfterPoll_ ? ctsDue_ : 0;
}

LaneSet* Engine::findLane(const Endpoint* endpoint, Lane** lane, Peering** owner) {
  *owner = nullptr;
  if ((*lane = flushLanes_.lanes().find(endpoint))) return &flushLanes_.lanes();
  for (auto& peering : peerings_) {
    if (!peering || !(*lane = peering->lanes().find(endpoint))) continue;
    *owner = peering.get();
    return &peering->lanes();
  }
  return nullptr;
}

void Engine::onLaneEvent(size_t rail, const Completion& completion) {
  Peering* owner = nullptr;
  Lane* lane = nullptr;
  LaneSet* lanes = findLane(completion.source, &lane, &owner);
  const std::string why = completion.ok ? "" : rails_[rail].queue->explain(completion);
  if (!lanes) return onSameHost(completion, why);
  if (completion.kind == CompletionKind::connected) {
    lanes->connected(*lane, completion.ok, why);
  } else if (completion.kind == CompletionKind::retired) {
    if (completion.error != EBUSY || !owner || !cutOff(*owner, *lane, why)) lanes->fenced(*lane);
  } else if (completion.kind == CompletionKind::faltering) {
    lanes->faltering(*lane, why);
  } else {
    lanes->suspect(*lane, why.empty() ? "the lane broke" : why);
  }
}

// No lane yet, or one that is gone.
void Engine::onSameHost(const Completion& completion, const std::string& why) {
  for (auto& peering : peerings_) {
    if (peering && peering->sameHost().is(completion.source))
      return peering->sameHost().answered(completion.ok, why);
  }
}

// The lane cannot be fenced without those of other peers on its card. Where all of them have another rail
// that is what happens, as this peering cannot go on before; else it is this peering that ends.
bool Engine::cutOff(Peering& owner, Lane& lane, const std::string& why) {
  const auto survives = [&](const auto& peering) {
    return !peering || peering->comms == 0 || peering->ending() || peering->lanes().upWithout(lane.rail());
  };
  const bool all = std::all_of(peerings_.begin(), peerings_.end(), survives);
  if (!owner.ending() && all && lane.endpoint().cut()) return true;
  owner.end({Ending::By::us,
             Error(Code::remote, "leaving a rail", owner.where(lane) + " could not be closed: " + why)});
  return false;
}

void Engine::onFailed(size_t rail, const Completion& completion) {
  Peering* owner = nullptr;
  Lane* lane = nullptr;
  if (LaneSet* lanes = findLane(completion.source, &lane, &owner); lanes && lane->up())
    lanes->suspect(*lane, rails_[rail].queue->explain(completion));
}

void Engine::onSent(const Completion& completion) {
  const auto kind = static_cast<WorkKind>(completion.context >> 60);
  if (kind == WorkKind::segment) return finishSegment(completion);
  if (kind == WorkKind::aside) return (void)asideFinished(completion);
  if (kind == WorkKind::eagerAgain || kind == WorkKind::credit) return landed(completion);
  if (kind == WorkKind::flush) flushLanes_.finished(completion);
}

inline Peering* Engine::asideFinished(const Completion& completion) {
  const auto large = static_cast<uint32_t>(completion.context);
  Peering* peering = peeringByNumber(static_cast<uint32_t>(completion.context >> 32) & 0xffffff);
  const size_t lane = completion.context >> 56 & 15;
  Lane* by = peering ? peering->lanes().find(lane) : nullptr;
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
  peering->eagerOut().landed(static_cast<uint32_t>(completion.context) >> kAsideBits);
}

// Between lane and index sit 4 bits of attempt, 4 of segment and 16 of the request's generation.
inline void Engine::finishSegment(const Completion& completion) {
  const auto index = static_cast<uint32_t>(completion.context);
  const auto generation = static_cast<uint16_t>(completion.context >> 32 & 0xffff);
  const size_t segment = completion.context >> 48 & 15;
  Request& request = requests_[index];
  if (request.kind != RequestKind::send || request.generation != generation) [[unlikely]]
    return finishStray(completion);
  SegmentInFlight& sent = request.segments[segment];
  if (sent.attempt != (completion.context >> 52 & 15) || sent.done) [[unlikely]]
    return finishStray(completion);
  request.comm->peering().lane(sent.lane).finished(sent.bytes, *this);
  if (!completion.ok || request.remaining == 0) [[unlikely]]
    return;
  sent.done = true;
  if (--request.remaining == 0) request.comm->asSend()->onSent(&request);
}

// A segment whose request is over already, as its comm is closed or its peer has left with all of it. The
// bytes were written off then; the lane has one work less all the same, or it would be blamed for silence.
void Engine::finishStray(const Completion& completion) {
  Peering* owner = nullptr;
  Lane* lane = nullptr;
  if (completion.source && findLane(completion.source, &lane, &owner)) lane->finished(0, *this);
}

void Engine::onEager(uint32_t number, const Completion& completion) {
  const uint64_t length = completion.length;
  counters_.eagerIn++;
  Peering* peering = peeringByNumber(number / kEagerSlotsPerPeering);
  const uint32_t slot = number % kEagerSlotsPerPeering;
  const bool theirs = peering && peering->mayNotify(completion.source);
  const std::byte* at = theirs ? peering->eagerIn().at(slot) : nullptr;
  EagerHeader header;
  if (!at || !readHeader(at, &header) || length < sizeof header || header.size != length - sizeof header ||
      !peering->eagerIn().mayArrive(header.size))  // on some fabrics the writer says how long its write was
      [[unlikely]] {
    counters_.foreignNotes++;
    return;
  }
  if (!peering->eagerIn().hold(slot, header.use)) [[unlikely]] {
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
  if (!slot || slot->state != SlotState::advertised || slot->generation != note.generation()) [[unlikely]] {
    counters_.staleNotes++;
    return;
  }
  if (!slot->comm->peering().lanes().mayNotify(completion.source)) [[unlikely]] {
    counters_.foreignNotes++;
    return;
  }
  slot->comm->onSegment(*slot, note, completion.length);
}

// A message's header is there: its comm says where it goes. A comm that is not there was closed meanwhile,
// and a message for it is read and dropped.
Place Engine::place(Endpoint& at, const MessageLabel& label, uint64_t length, bool mayWait) {
  const bool isMessage = label.imm == static_cast<uint32_t>(LabelKind::message);
  CommBase* comm = comms_.find(static_cast<uint32_t>(label.words.base));
  if (!comm || !comm->peering().lanes().mayNotify(&at)) {
    counters_.staleNotes++;
    return {};
  }
  if (isMessage && comm->asRecv()) return comm->asRecv()->place(directHeaderOf(label), length, mayWait);
  if (!isMessage && comm->asSend() && length == 0)
    return comm->asSend()->windowReturned(windowReturnOf(label));
  return {.refusal = "it sent a message to the wrong end of a connection"};
}

void Engine::onLanded(const Completion& completion) {
  const auto index = static_cast<uint32_t>(completion.context);
  if (isEarly(completion.context)) {
    Peering* peering = peeringByNumber(peeringOfEarly(completion.context));
    if (!peering || !peering->early().contains(index)) return;
    if (EarlyMessages::Early* early = peering->early().landed(index)) early->comm->earlyLanded(index);
    return;
  }
  ReceiveSlot* slot = slots_.contains(index & (kMaxSlots - 1)) ? &slots_[index & (kMaxSlots - 1)] : nullptr;
  if (!slot || slot->state != SlotState::landing || slot->code() != index) {
    counters_.staleNotes++;
    return;
  }
  slot->comm->directLanded(slot);
}

void Engine::onRare(size_t rail, const Completion& completion) {
  if (completion.kind != CompletionKind::sent) return onLaneEvent(rail, completion);
  onFailed(rail, completion);
  onSent(completion);
}

void Engine::dispatchAll(size_t rail, size_t n, int mostBatches) {
  for (;;) {
    dispatchEach(rail, std::span(completions_).first(n));
    if (n < completions_.size() || --mostBatches == 0) return;
    n = queues_[rail]->poll(completions_);
  }
}

// From where the last pass ended.
bool Engine::pollSeveral(int mostBatches) {
  if (!kept_.empty()) [[unlikely]]
    handOutKept();
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
  std::array<Completion, 32> found;      // its own: a pass may be handing out what is in completions_
  size_t n = found.size();
  if (!kept_.empty()) handOutKept();
  for (int i = 0; i < kMostBatches && n == found.size(); i++) {
    n = queues_[rail]->poll(found);
    dispatchEach(rail, std::span(found).first(n));
  }
}

}  // namespace weft::core
