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
  state.life = failed()                       ? "ended: " + stickyError().message()
               : life_.stage() > Stage::ended ? "closing"
               : other_ == OtherEnd::closed   ? "closed by the peer"
                                              : "live";
  return state;
}

const char* RecvCommImpl::whyOpen(const ReceiveSlot& slot) const {
  if (mayStand_.load(std::memory_order_relaxed)) return "it may stay open, and nothing waits for it";
  if (life_.is(Stage::opening)) return "the peer's half of the connection has not come";
  if (slot.state == SlotState::queued) {
    const bool known = !slot.memory || (slot.memory->announcement && slot.memory->announcement->acknowledged);
    if (!known) return "the peer has not acknowledged the memory it is to write to";
    return ctsRing_.canWrite() ? "the peer is about to be told"
                               : "the peer has not read what it was told before";
  }
  if (slot.sentAt != TimePoint{}) return "the peer has sent it, and it has not arrived";
  return slot.received > 0 ? "some of it is here" : "the peer has not sent it";
}

CommReport RecvCommImpl::describe() {
  CommReport state = describeCommon();
  state.messages = arrived_;
  for (const ReceiveSlot* slot = landing_; slot; slot = slot->next)
    state.waits.push_back({slot->tag, slot->k, slot->received, 1, {}, {}, "its bytes are on their way here"});
  tags_.each([&](uint32_t number, const TagState& tag) {
    if (tag.waiting != kNone) {
      Unmatched here{number, 0};
      for (uint32_t i = tag.waiting; i != kNone; i = waiting_[i].next) here.count++;
      state.unmatched.push_back(here);
    }
    if (!tag.first) return;
    Wait wait{number,
              tag.first->k,
              tag.first->capacity,
              0,
              tag.standing.since(),
              tag.standing.counted(),
              whyOpen(*tag.first)};
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
      const char* why = cleared > 0 ? "the CTS of an earlier receive with this tag has not come"
                        : peering().eagerOut().sends(tag.refusedBytes)
                            ? "the peer has no room for it and has posted no receive with this tag"
                            : "the peer has posted no receive with this tag";
      state.waits.push_back(
          {number, tag.k, tag.refusedBytes, 1, tag.standing.since(), tag.standing.counted(), why});
    } else if (cleared > 0) {
      state.unmatched.push_back({number, cleared});
    }
  });
  return state;
}

// The control thread's look at the waits, about once a second. No warning is due for a peer that does not
// answer, as the control link tells of it.

void RecvCommImpl::noteWaits(TimePoint now, TimePoint after, OldestWaits* oldest) {
  const bool counts = !mayStand_.load(std::memory_order_relaxed) && peering().peer()->answers();
  tags_.each([&](uint32_t, TagState& tag) {
    if (!tag.first) return tag.standing.over();
    tag.standing.seen(tag.first->k, now, counts);
    oldest->add(tag.standing.counted(), after);
  });
}

// A send that NCCL has not tried again since the last look is given up: NCCL tries all the time.
void SendCommImpl::noteWaits(TimePoint now, TimePoint after, OldestWaits* oldest) {
  const bool answers = peering().peer()->answers();
  tags_.each([&](uint32_t, TagState& tag) {
    const bool tried = std::exchange(tag.tried, false);
    if (!tried || !tag.refused(tag.k)) return tag.standing.over();
    tag.standing.seen(tag.k, now, answers);
    oldest->add(tag.standing.counted(), after);
  });
}

}  // namespace weft::core
