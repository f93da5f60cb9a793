// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <string>
#include <utility>
#include <vector>

#include "src/base/log.h"
#include "src/core/comm_report.h"
#include "src/core/recv_comm.h"
#include "src/core/send_comm.h"

// What engines and comms tell of themselves, in the values of comm_report.h. The caller is inside the engine,
// but for Engine::stateText, which enters it. Above all of them, so that a report is only values.
namespace weft::core {

namespace {

// As an operator knows them.
const char* stateName(Stage stage) {
  if (stage == Stage::joining) return "connecting";
  if (stage == Stage::open) return "live";
  if (stage == Stage::paused) return "suspected";
  if (stage == Stage::left) return "closed by the peer";
  return stage > Stage::left ? "ended" : "opening";
}

std::string peeringText(const Peering& peering) {
  const LaneSet& lanes = peering.lanes();
  std::string text =
      format("  to %s: %s, %zu of %zu lanes up on rail %s, the process %s\n", peering.peer()->name().c_str(),
             stateName(peering.stage()), lanes.up(), lanes.size(), lanes.railNames().c_str(),
             peering.peer()->answers() ? "answers" : "does not answer");
  if (peering.ending()) text += "    " + peering.ending()->error.message() + "\n";
  return text;
}

// The name of the peer's process among those of this host; empty: it has not told.
std::string processOf(const control::Peer& peer) {
  for (const control::FingerprintField& field : peer.fingerprint())
    if (field.name == kProcessField) return field.value;
  return {};
}

}  // namespace

// Formatted outside, as what is gathered inside keeps NCCL waiting.
std::string Engine::stateText() {
  std::vector<CommReport> comms;
  std::string text;
  TimePoint now;
  {
    EngineEntry in(*this, EngineEntry::wait);
    now = readNow();
    for (const auto& peering : peerings_)
      if (peering) text += peeringText(*peering);
    eachComm([&](CommBase& comm) { comms.push_back(comm.describe()); });
  }
  for (const CommReport& comm : comms) text += core::stateText(comm, now);
  return format("device %s, engine %u: %zu comms\n", deviceName().c_str(), id_, comms.size()) + text;
}

// What comms tell of themselves:

CommReport CommBase::describeCommon() const {
  CommReport state;
  state.number = number_;
  state.sends = send_ != nullptr;
  state.device = engine().deviceName();
  state.peer = peering().peer()->name();
  state.answers = peering().peer()->answers();
  state.process = processOf(*peering().peer());
  state.waitsFor = peering().waitsFor();
  state.rails = peering().lanes().railNames();
  state.lanes = peering().lanes().size();
  state.lanesUp = peering().lanes().up();
  state.life = failed()                       ? "ended: " + stickyError().message()
               : life_.stage() > Stage::ended ? "closing"
               : other_ == OtherEnd::closed   ? "closed by the peer"
                                              : "live";
  return state;
}

void RecvCommImpl::explain(const ReceiveSlot& slot, Wait* wait) const {
  const auto is = [wait](Side side, const char* why) {
    wait->side = side;
    wait->why = why;
  };
  if (mayStand_.load(std::memory_order_relaxed))
    return is(Side::here, "it may stay open, and nothing waits for it");
  if (life_.is(Stage::opening)) return is(Side::other, "the peer's half of the connection has not come");
  if (lastAreComing()) return is(Side::path, "the peer has closed, and its last messages are on their way");
  if (slot.state == SlotState::queued) {
    const bool known = !slot.memory || (slot.memory->announcement && slot.memory->announcement->acknowledged);
    if (!known) return is(Side::other, "the peer has not acknowledged the memory it is to write to");
    if (!engine().budget().mayTake(share_))
      return is(Side::here, "receives of other connections take all notifications that the engine may have");
    // A message that leaves without one may come all the same.
    return ctsRing_.canWrite() ? is(Side::peer, "the peer is about to be told")
                               : is(Side::peer, "the peer has not read what it was told before");
  }
  if (slot.sentAt != TimePoint{}) return is(Side::path, "the peer has sent it, and it has not arrived");
  if (slot.received > 0) return is(Side::path, "some of it is here");
  is(Side::peer, "the peer has not sent it");
}

CommReport RecvCommImpl::describe() {
  CommReport state = describeCommon();
  state.messages = arrived_;
  for (const ReceiveSlot* slot = landing_; slot; slot = slot->next) {
    Wait wait;
    wait.tag = slot->tag;
    wait.k = slot->k;
    wait.bytes = slot->received;
    if (!slot->next) wait.since = landingStanding_.since(), wait.counted = landingStanding_.counted();
    wait.why = "its bytes are on their way here";
    wait.side = Side::path;
    state.waits.push_back(wait);
  }
  tags_.each([&](uint32_t number, const TagState& tag) {
    if (tag.waiting != kNone) {
      Unmatched here{number, 0};
      for (uint32_t i = tag.waiting; i != kNone; i = waiting_[i].next) here.count++;
      state.unmatched.push_back(here);
    }
    if (!tag.first) return;
    Wait wait;
    wait.tag = number;
    wait.k = tag.first->k;
    wait.bytes = tag.first->capacity;
    wait.requests = 0;
    wait.since = tag.standing.since();
    wait.counted = tag.standing.counted();
    explain(*tag.first, &wait);
    for (const ReceiveSlot* slot = tag.first; slot; slot = slot->next) wait.requests++;
    state.waits.push_back(wait);
  });
  return state;
}

CommReport SendCommImpl::describe() {
  CommReport state = describeCommon();
  state.messages = messages_;
  state.inFlight = unfinished_;
  if (!failed()) readCtsChain();
  tags_.each([&](uint32_t number, const TagState& tag) {
    size_t cleared = 0;
    for (uint16_t i = tag.first; i != kNoCts; i = i == tag.last ? kNoCts : nextInTag_[i]) cleared++;
    if (tag.refused(tag.k)) {
      Wait wait;
      wait.tag = number;
      wait.k = tag.k;
      wait.bytes = tag.refusedBytes;
      wait.since = tag.standing.since();
      wait.counted = tag.standing.counted();
      wait.why = cleared > 0 ? "the CTS of an earlier receive with this tag has not come"
                 : peering().eagerOut().sends(tag.refusedBytes)
                     ? "the peer has no room for it and has told of no receive with this tag"
                     : "the peer has told of no receive with this tag";
      wait.side = cleared > 0 ? Side::path : Side::peer;
      state.waits.push_back(wait);
    } else if (cleared > 0) {
      state.unmatched.push_back({number, cleared});
      if (tag.asked.counted() != TimePoint{})
        state.asked.push_back({number, tag.k, tag.asked.counted(), tag.k == 0 && messages_ > 0});
    }
  });
  return state;
}

// The control thread's look at the waits, about twice a second. No warning is due for a peer that does not
// answer, as the control link tells of it.

Nanoseconds CommBase::waitLimit(uint64_t bytes, bool first) const {
  const Milliseconds said = engine().config().waitWarn;
  if (said.count() >= 0) return said;
  return first ? WaitHistory::kAtFirst : history_.limitFor(bytes, peering().lanes().rate());
}

void CommBase::lookAt(Standing* standing, const Awaited& message, bool counts, WaitLook* look) {
  history_.ended(standing->seen(message.k, message.bytes, look->now, counts));
  look->add(*standing, waitLimit(message.bytes, message.first));
  // The number of a tag's first message says nothing about the order of messages of all tags.
  const bool strange = message.k == 0 && !message.first;
  if (strange || look->now - standing->since() < WaitLook::kTellAfter ||
      mayStand_.load(std::memory_order_relaxed))
    return;
  const Culprit& told = peering().waitsFor();
  look->blame(standing->since(),
              told.isBefore(message.k) ? told : Culprit{peering().peer()->name(), message.k});
}

// The message that began to land first.
void RecvCommImpl::noteLanding(bool counts, WaitLook* look) {
  if (!landing_) return history_.ended(landingStanding_.over(look->now));
  const ReceiveSlot* oldest = landing_;
  while (oldest->next) oldest = oldest->next;
  lookAt(&landingStanding_, {oldest->k, oldest->received, arrived_ == 0}, counts, look);
}

void RecvCommImpl::noteWaits(WaitLook* look) {
  const bool counts = !mayStand_.load(std::memory_order_relaxed) && peering().peer()->answers();
  noteLanding(counts, look);
  tags_.each([&](uint32_t, TagState& tag) {
    if (!tag.first) return history_.ended(tag.standing.over(look->now));
    lookAt(&tag.standing, {tag.first->k, tag.first->capacity, arrived_ == 0}, counts, look);
  });
}

// A send that NCCL has not tried again since the last look is given up: NCCL tries all the time. A receive of
// the peer's that nobody fills is looked at, too: it is this end then that is late.
void SendCommImpl::noteWaits(WaitLook* look) {
  const bool answers = peering().peer()->answers();
  if (life_.is(Stage::open) && !peering().suspected()) readCtsChain();
  tags_.each([&](uint32_t, TagState& tag) {
    const bool tried = std::exchange(tag.tried, false);
    const bool refused = tried && tag.refused(tag.k);
    if (refused)
      lookAt(&tag.standing, {tag.k, tag.refusedBytes, messages_ == 0}, answers, look);
    else
      history_.ended(tag.standing.over(look->now));
    if (refused || tag.first == kNoCts || mayStand_.load(std::memory_order_relaxed))
      return history_.ended(tag.asked.over(look->now));
    history_.ended(tag.asked.seen(tag.k, 0, look->now, answers));
    look->addAsked(tag.asked, waitLimit(0, messages_ == 0));
  });
}

}  // namespace weft::core
