// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <utility>

#include "src/core/send_comm.h"

// What a sender hears from its receiver by the control link, what it tells it, and how it closes.
namespace weft::core {

void SendCommImpl::onMessage(MessageType type, ByteReader* body) {
  CommMessage plain;
  ProbeMessage probe;
  CtsMessage again;
  OpenMemoryMessage opened;
  ShutMemoryMessage shut;
  if (type == MessageType::probe && decodeBody(body, &probe)) return answerProbe(probe);
  if (type == MessageType::ctsAgain && decodeBody(body, &again)) return takeCts(again);
  if (type == MessageType::openMemory && decodeBody(body, &opened)) return takeOpened(opened);
  if (type == MessageType::shutMemory && decodeBody(body, &shut)) return forgetOpened(shut);
  if (!decodeBody(body, &plain)) return;
  if (type == MessageType::receivedAll) otherIs(OtherEnd::settled);
  if (type == MessageType::gpuMemory) toGpu_.store(true, std::memory_order_relaxed);
  if (type == MessageType::askRead) {
    readCtsChain();
    peering().tell(MessageType::tellRead, CommMessage{remoteNumber_, sequence_});
  }
  if (type == MessageType::cancel) {
    life_.apply(Event::withdrawn);
    tellTotal();
  }
}

// Said once nothing new begins. The receiver may take its memory away when it has as many, and says so; what
// is still queued at a lane has been posted as far as it is concerned.
void SendCommImpl::tellTotal() {
  tellSums();
  peering().tell(MessageType::total, CommMessage{remoteNumber_, messages_});
}

void SendCommImpl::answerProbe(const ProbeMessage& probe) {
  readCtsChain();
  ProbeMessage answer = probe;
  answer.comm = remoteNumber_;
  const SequenceSpace& sequences = engine().sequences();
  if (sequences.before(probe.k, tags_.at(probe.tag).k)) {
    // While its lane has not said what became of it, the lane is watched here.
    answer.state = inFlight(probe.tag, probe.k) ? ProbeState::notPosted : ProbeState::sent;
  } else if (!sequences.before(probe.ctsSequence, sequence_)) {
    answer.state = ProbeState::waitingForCts;
  } else {
    answer.state = ProbeState::notPosted;
  }
  peering().tell(MessageType::probed, answer);
}

bool SendCommImpl::inFlight(uint32_t tag, uint32_t k) {
  bool found = false;
  engine().eachRequestOf(this, [&](const Request& request) {
    found = found || (request.kind == RequestKind::send && request.remaining > 0 &&
                      request.sequence[0] == k && static_cast<uint32_t>(request.tags[0]) == tag);
  });
  return found;
}

// Into the ring, as if they had been written there; what was read already is not looked at again.
void SendCommImpl::takeCts(const CtsMessage& message) {
  for (const auto& [position, cts] : message.cts) {
    Cts whole;
    if (position >= kRingPositions || !readWhole(&cts, &whole) || whole.comm != number_) {
      engine().counters().foreignNotes++;
    } else if (!engine().sequences().before(whole.sequence, sequence_)) {
      std::memcpy(ring_.data() + size_t{position} * sizeof cts, &cts, sizeof cts);
    }
  }
}

// Watching and closing:

// A fabric that has not finished its works in time may read their memory as long as the lanes stand, so they
// are cut before the requests go, and the memory with them. Sent is not delivered where the fabric only
// accepts, so the receiver is asked whether it has everything; then nothing of this comm can be lost by
// closing the lanes after it. Where it does not answer nothing is lost either as long as they stand.
std::optional<Event> SendCommImpl::closingEvent() {
  tellSums();
  if (life_.is(Stage::draining)) {
    if (unfinished_ > 0) return when(closingLate(), Event::late);
    const bool asks = messages_ > 0 && other_ == OtherEnd::open && !failed() &&
                      !peering().unresponsive(engine().clock().now());
    return asks ? Event::drained : Event::settled;
  }
  if (other_ != OtherEnd::open || failed()) return Event::settled;
  return when(closingLate(), Event::unanswered);
}

void SendCommImpl::letGo() {
  engine().eachRequestOf(this, [&](Request& request) { letGo(&request); });
}

void SendCommImpl::watch(TimePoint) {
}  // lanes are watched by their peering; a missing CTS by the receiver's probe

// Also of a comm that failed: its sends are over soon, and cutting the lanes would end the comms beside it.
void SendCommImpl::stopUsing(MemoryHandle* handle) {
  if (waitFor([&] { return handle->inUse == 0; })) return;
  fence();
  EngineEntry in(engine(), EngineEntry::wait);
  engine().eachRequestOf(this, [&](Request& request) {  // one may still hear what became of it
    if (request.memory == handle) request.memory = nullptr;
  });
  handle->inUse = 0;
}

// A receiver that closes has everything it let us write (it cancels what it still waits for before), so what
// a fabric has not confirmed yet was delivered all the same, and nobody is left to confirm it.
void SendCommImpl::onPeerGone() {
  letGo();
}

// Nobody waits any more for what a fabric still has of it. Its completions settle the works with their lanes
// (Engine::finishStray), and cannot name the bytes by then.
void SendCommImpl::letGo(Request* request) {
  if (request->remaining == 0 || request->segmentCount == 0) return;
  for (size_t i = 0; i < request->segmentCount; i++) {
    SegmentInFlight& segment = request->segments[i];
    if (!std::exchange(segment.done, true)) peering().lane(segment.lane).writeOff(segment.bytes);
  }
  request->remaining = 0;
  onSent(request);
}

}  // namespace weft::core
