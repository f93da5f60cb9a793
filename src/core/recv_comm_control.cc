// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/recv_comm.h"

// The receiving end's slower side: errors, messages from the sender, probing for what went missing, closing.
namespace weft::core {

// What fails it:

Posted RecvCommImpl::refuse(const char* why) {
  EngineEntry in(engine(), EngineEntry::wait);
  endByUs(Error(Code::invalidArgument, "posting a receive", "from " + peering().peer()->name() + ": " + why));
  return {false, nullptr};
}

void RecvCommImpl::failPosting(bool noSlot) {
  if (noSlot)
    return endByUs(Error(Code::resources, "posting a receive", "the engine has 262144 receives open"));
  if (life_.is(Stage::stopped) && !closedByPeer()) return endWithdrawn();
  if (closedByPeer() && sent_ != kNotTold && !hasAll()) return endForLost();
  end({Ending::By::peer, Error(Code::remote, "posting a receive",
                               peering().peer()->name() + " closed the connection and sent nothing more")});
}

void RecvCommImpl::overrun(const ReceiveSlot& slot, ReceivedNote note, uint64_t length) {
  endByUs(
      Error(Code::remote, "receiving",
            format("%s wrote segment %u of %u with %llu bytes into a receive of %llu that has %llu",
                   peering().peer()->name().c_str(), note.segment(), note.segments(),
                   static_cast<unsigned long long>(length), static_cast<unsigned long long>(slot.capacity),
                   static_cast<unsigned long long>(slot.received))));
}

void RecvCommImpl::tooLarge(uint32_t tag, uint32_t k, uint64_t sent, uint64_t room) {
  const MustNotFail nobodyToTell;  // within a poll that may be another comm's
  endByUs(Error(Code::invalidArgument, "matching a message",
                format("tag %u, message %u: %llu bytes sent by %s to a receive of %llu", tag, k,
                       static_cast<unsigned long long>(sent), peering().peer()->name().c_str(),
                       static_cast<unsigned long long>(room))));
}

// Sums of bytes:

// Its bytes are here, and nobody has them yet. False: they are not what was sent, and the comm has ended.
bool RecvCommImpl::isAsSent(const ReceiveSlot& slot, uint64_t bytes) {
  if (bytes == 0 || slot.placed || !canSum(slot.memory)) return true;
  const MustNotFail first;  // the book's memory
  Corruption found;
  const PayloadSum ours = PayloadSum::of(slot.tag, slot.k, {static_cast<const std::byte*>(slot.data), bytes});
  const SumBook::Found is = book_.received(ours, &found);
  if (is != SumBook::Found::waits) stats_.checked(is == SumBook::Found::same);
  if (is == SumBook::Found::differs) corrupt(found);
  return is != SumBook::Found::differs;
}

void RecvCommImpl::takeSums(const SumsMessage& message) {
  const MustNotFail first;
  for (const PayloadSum& sum : message.sums) {
    if (sum.bytes == 0 || !sums_.concerns(sum.k)) continue;
    Corruption found;
    const SumBook::Found is = book_.told(sum, &found);
    if (is != SumBook::Found::waits) stats_.checked(is == SumBook::Found::same);
    if (is == SumBook::Found::differs) corrupt(found);
  }
}

// A sender that closed its end does not hear of it any more, so the line is a warning of its own.
void RecvCommImpl::corrupt(const Corruption& found) {
  std::string rails;
  for (const uint8_t lane : found.lanes())
    if (const Lane* by = peering().lanes().find(size_t{lane}))
      rails += (rails.empty() ? "" : ", ") + by->railName();
  if (rails.empty()) rails = peering().lanes().railNames();
  const PayloadSum& sent = found.sent;
  const std::string where =
      found.got == sent.bytes
          ? format("its bytes from %llu to %llu differ, in %zu of %zu parts",
                   static_cast<unsigned long long>(found.begin), static_cast<unsigned long long>(found.end),
                   found.parts, partsOf(sent.bytes))
          : format("%llu bytes are here", static_cast<unsigned long long>(found.got));
  Error error(Code::remote, "checking a message's bytes",
              format("tag %u, message %u of %llu bytes from %s over rail %s is not what was sent: %s; next: "
                     "errors of that rail on both hosts (ethtool -S, perfquery), and of memory (dmesg)",
                     sent.tag, sent.k, static_cast<unsigned long long>(sent.bytes),
                     peering().peer()->name().c_str(), rails.c_str(), where.c_str()));
  if (failed() || closedByPeer()) WEFT_LOG(warn, "%s", error.message().c_str());
  endByUs(std::move(error));
}

// Messages:

// What failed here before could not be told, as nobody knew the sender's number.
void RecvCommImpl::onOpen(const OpenMessage& message) {
  remoteNumber_ = message.sender;
  if (failed()) {
    peering().tell(MessageType::failed, FailedMessage{remoteNumber_, stickyError().message()});
  } else if (Status status = adopt(message); !status) {
    endByUs(status.takeError());
  } else {
    tellGpuMemory();
  }
}

void RecvCommImpl::onMessage(MessageType type, ByteReader* body) {
  ProbeMessage probe;
  CommMessage plain;
  OpenMessage open;
  SumsMessage sums;
  ShutMemoryMessage shut;
  if (type == MessageType::checksums && decodeBody(body, &sums)) return takeSums(sums);
  if (type == MessageType::memoryShut && decodeBody(body, &shut)) return takeShut(shut);
  if (type == MessageType::open && decodeBody(body, &open)) return onOpen(open);
  if (type == MessageType::probed && decodeBody(body, &probe)) return answerProbed(probe);
  if (!decodeBody(body, &plain)) return;
  if (type == MessageType::tellRead) {
    ctsRing_.readUpTo(static_cast<uint32_t>(plain.number));
    readAsked_ = false;
  }
  if (type == MessageType::total) takeTotal(plain.number);
}

void RecvCommImpl::takeTotal(uint64_t sent) {
  sent_ = sent;
  otherIs(OtherEnd::settled);
  if (hasAll()) tellReceivedAll();
}

void RecvCommImpl::tellReceivedAll() {
  const MustNotFail nobodyToTell;  // within a poll that may be another comm's
  peering().tell(MessageType::receivedAll, CommMessage{remoteNumber_, 0});
}

void RecvCommImpl::onPeerClosed(std::optional<uint64_t> sent) {
  CommBase::onPeerClosed(sent);
  unwritten_.clear();
  if (sent_ == kNotTold && sent) sent_ = *sent;
  if (!lastAreComing()) nothingMoreComes();
}

// The sender's word that it has closed goes by the control link, so it may be here before its last messages.
// It is answered all the same: a peer that let a close wait in vain is asked again once it has said anything.
void RecvCommImpl::allAreHere() {
  if (!peering().remoteGone()) tellReceivedAll();
  if (closedByPeer()) nothingMoreComes();
}

void RecvCommImpl::nothingMoreComes() {
  if (awaitedCount() == 0) return letGoOfPlaced();
  end({Ending::By::peer, Error(Code::remote, "receiving",
                               format("%s closed the connection with %u receives posted here",
                                      peering().peer()->name().c_str(), awaitedCount()))});
}

// What takes too long:

// A receive may wait for ever for a sender that has not sent. So the oldest one of each tag asks (later ones
// cannot have been sent before it), and only an answer that says "sent" or "your CTS never came" starts a
// clock; it runs while the peer's process answers and has settled.
void RecvCommImpl::watch(TimePoint now) {
  if (!peering().peer()->answers()) return;
  if (closedByPeer()) return watchLast(now);
  tags_.each([&](uint32_t, const TagState& tag) {
    if (!tag.first) return;
    const ReceiveSlot& slot = *tag.first;
    if (slot.state != SlotState::advertised || now - slot.advertisedAt < engine().config().laneTimeout / 2)
      return;
    peering().tell(
        MessageType::probe,
        ProbeMessage{remoteNumber_, slot.tag, slot.k, slot.ctsSequence, slot.index, slot.generation, {}});
  });
}

// Nobody is left to ask about what a sender that has closed had sent. So each message that arrives gives the
// next one as much time as a lane has for it.
void RecvCommImpl::watchLast(TimePoint now) {
  if (!lastAreComing() || awaitedCount() + landingCount_ == 0) return;
  if (lastAt_ == TimePoint{} || lastArrived_ != arrived_ || !peering().peer()->settled()) {
    lastAt_ = now;
    lastArrived_ = arrived_;
  }
  uint64_t largest = 0;
  for (const ReceiveSlot* slot = landing_; slot; slot = slot->next)
    largest = std::max(largest, slot->received);
  eachOpen([&](const ReceiveSlot& slot) { largest = std::max(largest, slot.capacity); });
  if (now - lastAt_ >= peering().lanes().patience() + slowest(largest)) endForLost();
}

void RecvCommImpl::endForLost() {
  end({Ending::By::gone,
       Error(Code::remote, "receiving",
             format("%s closed the connection, and %llu of its %llu messages did not come over rail %s%s",
                    peering().peer()->name().c_str(), static_cast<unsigned long long>(sent_ - arrived_),
                    static_cast<unsigned long long>(sent_), peering().lanes().railNames().c_str(),
                    peering().ending() ? (": " + peering().ending()->error.message()).c_str() : ""))});
}

void RecvCommImpl::answerProbed(const ProbeMessage& answer) {
  if (!engine().hasSlot(answer.slot)) return;  // never ours
  ReceiveSlot& slot = engine().slot(answer.slot);
  if (slot.comm != this || slot.state != SlotState::advertised || slot.generation != answer.generation)
    return;
  if (slot.tag != answer.tag || slot.k != answer.k) return;  // its generation came again
  if (answer.state == ProbeState::notPosted) {
    slot.sentAt = TimePoint{};
    return;
  }
  const TimePoint now = engine().now();
  if (slot.sentAt == TimePoint{} || !peering().peer()->settled()) slot.sentAt = now;
  if (now - slot.sentAt < peering().lanes().patience() + slowest(slot.capacity)) return;
  const bool cts = answer.state == ProbeState::waitingForCts;
  const std::string rails = peering().lanes().railNames();
  endByUs(
      Error(Code::remote, "receiving",
            format("tag %u, message %u from %s was lost on rail %s: %s", slot.tag, slot.k,
                   peering().peer()->name().c_str(), rails.c_str(),
                   cts ? "the sender never saw our CTS" : "it was sent, but its notification never came")));
}

// Fail-over:

// What may have been lost with a lane goes by the control link, which loses nothing. Both ends of the lane
// are fenced, so no write of the same CTS can come later.
void RecvCommImpl::tellCts(uint8_t lane) {
  CtsMessage message{remoteNumber_, {}};
  const auto add = [&](uint16_t position, uint8_t* by) {
    if (*by != lane) return;
    *by = kNoLane;
    auto& placed = message.cts.emplace_back();
    placed.position = position;
    std::memcpy(&placed.cts, staging_.data() + size_t{position} * sizeof placed.cts, sizeof placed.cts);
  };
  eachOpen([&](ReceiveSlot& slot) {
    if (slot.state == SlotState::advertised) add(slot.position, &slot.lane);
  });
  ctsRing_.eachOvertaken([&](uint16_t position, uint8_t& by) { add(position, &by); });
  if (message.cts.empty()) return;
  engine().counters().ctsAgain += message.cts.size();
  peering().tell(MessageType::ctsAgain, message);
}

// Closing:

// The sender may be writing to a receive that was cleared to it; where messages may come directly, to any.
bool RecvCommImpl::mayBeWritten() {
  bool told = landingCount_ > 0 || (window_.granted() > 0 && openCount_ > 0);
  eachOpen([&](const ReceiveSlot& slot) { told = told || slot.state == SlotState::advertised; });
  return told && !hasAll();
}

// As for memory that is taken away (cancelReceives), a step at a time.
std::optional<Event> RecvCommImpl::closingEvent() {
  unwritten_.clear();
  if (!mayBeWritten()) return Event::settled;
  if (leftUnanswered()) return Event::late;
  if (life_.is(Stage::draining))
    return peering().unresponsive(engine().clock().now()) ? Event::late : Event::drained;
  return when(closingLate(), Event::late);
}

// CTS that the sender may not have read may still be on their way, and are written from the staging memory.
void RecvCommImpl::letGo() {
  const bool unread = ctsRing_.hasOvertaken() || advertisedCount_ > 0;
  closeAllSlots();
  if (unread) peering().restStaging(std::move(staging_));
  dropWaiting();
  dropWindow();
  giveBackStanding();
  engine().budget().close(&share_);
}

// No CTS is written any more, so nothing comes but what was cleared to send before.
void RecvCommImpl::stop() {
  life_.apply(Event::withdrawn);
  unwritten_.clear();
}

// Makes the sender stop and waits for what it had posted. False: it did not agree in time, or closed without
// an answer, so its lanes must be cut.
bool RecvCommImpl::cancelReceives() {
  {
    EngineEntry in(engine(), EngineEntry::wait);
    stop();
    if (!mayBeWritten()) return true;
    if (peering().unresponsive(engine().clock().now()) || leftUnanswered()) return false;
    askOther();
  }
  bool agreed = false;
  waitFor([&] {
    agreed = hasAll();
    return agreed || leftUnanswered();
  });
  return agreed;
}

// First, the sender places nothing more in it. What was sent arrives within the cancel's deadline. A receive
// that is open after it was not, and never will be, whatever memory it is for: the sender has stopped. So the
// comm ends, and says it.
void RecvCommImpl::stopUsing(MemoryHandle* handle) {
  if (!waitUntilShut(handle)) fence();
  {
    EngineEntry in(engine(), EngineEntry::wait);
    if (handle->inUse == 0) return;
  }
  if (!cancelReceives()) fence();
  EngineEntry in(engine(), EngineEntry::wait);
  if (openCount_ + landingCount_ == 0) return;
  endWithdrawn();
  closeAllSlots();
  handle->inUse = 0;
}

void RecvCommImpl::endWithdrawn() {
  end({Ending::By::caller, Error(Code::invalidArgument, "deregistering memory",
                                 "receives into it were still posted; they are canceled, and so is all that "
                                 "this comm had yet to receive")});
}

}  // namespace weft::core
