// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/send_comm.h"

#include <cstring>
#include <utility>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/posting.h"

namespace weft::core {

namespace {

constexpr uint8_t kMostAttempts = 14;       // of a segment: 4 bits carry them
constexpr uint64_t kEagerBetweenPolls = 4;  // of which each may end with the first rail

const Peering::Imported kNowhere{};

}  // namespace

Result<std::unique_ptr<SendCommImpl>> SendCommImpl::create(CommOptions options, uint32_t remoteNumber,
                                                           uint32_t window) {
  // What can fail comes first: our caller is inside the engine, which closing a comm enters.
  TRY(mem::Block ring, options.peering->takeRing());
  auto comm = std::make_unique<SendCommImpl>(std::move(options));
  const MustNotFail made;  // the line of a trace
  comm->remoteNumber_ = remoteNumber;
  comm->life_.apply(Event::joined);
  if (comm->peering().takesDirect()) comm->window_.open(window);
  comm->ring_ = std::move(ring);
  if (comm->sums_.concernsSome()) comm->sumsToTell_.makeRoom();
  std::memset(comm->ring_.data(), 0,
              kRingBytes);  // an earlier comm's CTS carry its number, but zero is clearer
  return comm;
}

// A connection that did not come about: the peer may know the ring.
SendCommImpl::~SendCommImpl() {
  if (number() != 0) leaveRing();
}

void SendCommImpl::leaveRing() {
  if (ring_) peering().keepRing(std::move(ring_));
}

// isend:

// Of the arguments alone: nothing that another thread may change meanwhile.
inline const char* SendCommImpl::fault(const Send& send) const {
  if (send.bytes > kMaxMessageBytes) return "a message above 1 GiB; split it";
  return memoryFault(send.memory, this, send.data, send.bytes);
}

Posted SendCommImpl::refuse(const char* why) {
  EngineEntry in(engine(), EngineEntry::wait);
  return failSending(Code::invalidArgument, why);
}

Posted SendCommImpl::failSending(Code code, const char* why) {
  endByUs(Error(code, "sending", "to " + peering().peer()->name() + ": " + why));
  return {false, nullptr};
}

// Follows the chain as far as it has arrived. A CTS that does not fit yet (torn, late, an older one) ends
// the walk and is looked at again next time.
void SendCommImpl::readNewCts() {
  Cts cts;
  do {
    if (!readCts(ctsAt(position_), &cts) || cts.comm != number_ || cts.sequence != sequence_ ||
        cts.next >= kRingPositions)
      return;
    const uint16_t here = position_;
    position_ = cts.next;
    sequence_ = engine().sequences().next(sequence_);
    TagState& tag = tags_.at(cts.tag);
    // Its message left eagerly; the receiver will use the position again as soon as it hears that we have
    // read this far.
    if (engine().sequences().before(cts.k, tag.k)) {
      engine().counters().crossedCts++;
      forgetCts(here);
      continue;
    }
    nextInTag_[here] = kNoCts;
    if (tag.first == kNoCts) {
      tag.first = here;
    } else {
      nextInTag_[tag.last] = here;
    }
    tag.last = here;
  } while (ctsIsNew());
}

// A position may rest while the sequence numbers go once around; what it held must not pass for the CTS that
// is awaited there then. Before the receiver can learn that we are done with it, so nothing new is there yet.
void SendCommImpl::forgetCts(uint16_t position) {
  eraseCts(ring_.data() + size_t{position} * sizeof(Cts));
}

// The CTS that comes next of those read for a tag is done with, its message having left by it or eagerly.
inline void SendCommImpl::usedFirstCts(TagState* tag) {
  forgetCts(tag->first);
  tag->first = nextInTag_[tag->first];
}

inline void SendCommImpl::postSegment(Request* request, size_t i, uint64_t offset, Lane& lane,
                                      const Peering::Imported& target) {
  const SegmentInFlight& segment = request->segments[i];
  const Transfer& transfer = request->transfer;
  Work work;
  work.op = Opcode::writeNotify;
  work.delivered = peering().wantsDelivered();
  work.imm = segmentNote(transfer.slot, static_cast<uint32_t>(i), request->segmentCount);
  if (segment.attempt > 0) [[unlikely]]
    work.imm |= noteKindBits(segment.attempt % 2 ? NoteKind::againOdd : NoteKind::againEven);
  // The seam's pointer is not const because reads write through it; a write only reads.
  work.local = static_cast<std::byte*>(const_cast<void*>(transfer.data)) + offset;
  work.length = segment.bytes;
  const bool empty = request->bytes == 0;
  work.memory = empty ? nullptr : request->memory->region->rail(lane.rail());
  work.remote = empty ? peering().landing(lane) : target[lane.number()];
  work.remoteOffset = empty ? peering().landingOffset() : transfer.offset + offset;
  const auto small = request->generation | static_cast<uint32_t>(i) << 16 | uint32_t{segment.attempt} << 20;
  work.context = workContext(WorkKind::segment, request->index, small, lane.number());
  peering().submit(lane, work);
}

// The receiver cleared less than is sent, or memory that it never announced.
void SendCommImpl::failAgainst(uint32_t tag, size_t bytes, HeldCts cts) {
  const std::string& peer = peering().peer()->name();
  if (bytes > cts.size()) {
    endByUs(Error(Code::invalidArgument, "matching a message",
                  format("tag %u, message %u: %zu bytes sent to %s, which posted a receive of %llu", tag,
                         cts.k(), bytes, peer.c_str(), static_cast<unsigned long long>(cts.size()))));
  } else {
    endByUs(
        Error(Code::remote, "matching a message",
              format("%s cleared memory %u to send, which it never announced", peer.c_str(), cts.memory())));
  }
}

inline Request* SendCommImpl::sendByCts(const Send& send, TagState& tag, HeldCts cts) {
  const Peering::Imported* target = peering().memory().imported(cts.memory());
  if (send.bytes > cts.size() || (!target && cts.size() > 0)) [[unlikely]] {
    failAgainst(send.tag, send.bytes, cts);
    return nullptr;
  }
  Request* request = begin(send, cts.k());
  if (!request) [[unlikely]]
    return nullptr;
  request->record = stats_.posted(send.tag, cts.k(), send.bytes, stats::Way::rendezvous);
  request->transfer = {send.data, cts.offset(), cts.memory(), cts.slot()};
  usedFirstCts(&tag);
  tag.k = engine().sequences().next(tag.k);
  unfinished_++;
  if (send.memory && send.bytes > 0) {
    request->memory = send.memory;
    send.memory->inUse++;
  }
  const Peering::Imported& there = target ? *target : kNowhere;
  if (peering().lanes().mayBeSplit(send.bytes)) {
    postSegments(request, there);
  } else {
    postWhole(request, peering().lanes().quickest(send.bytes), there);
  }
  if (sums_.concerns(request->sequence[0])) [[unlikely]]
    sum(*request);
  return request;
}

inline void SendCommImpl::postWhole(Request* request, Lane& lane, const Peering::Imported& target) {
  request->remaining = request->segmentCount = 1;
  request->segments[0] = {lane.number(), 0, false, static_cast<uint32_t>(request->bytes)};
  postSegment(request, 0, 0, lane, target);
}

void SendCommImpl::postSegments(Request* request, const Peering::Imported& target) {
  std::array<Segment, kMaxSegments> plan;
  const size_t count = peering().lanes().split(request->bytes, &plan);
  request->remaining = request->segmentCount = static_cast<uint8_t>(count);
  for (size_t i = 0; i < count; i++) {
    request->segments[i] = {plan[i].lane, 0, false, static_cast<uint32_t>(plan[i].length)};
    postSegment(request, i, plan[i].offset, peering().lane(plan[i].lane), target);
  }
}

// Puts the message into its slot of the staging; the bytes that are to leave from there.
inline size_t SendCommImpl::stageEager(int slot, const Send& send, TagState& tag) {
  EagerHeader header;
  header.comm = remoteNumber_;
  header.tag = send.tag;
  header.k = tag.k;
  header.size = static_cast<uint32_t>(send.bytes);
  header.ctsRead = sequence_;
  header.use = peering().eagerOut().use(slot);
  std::byte* staging = peering().eagerOut().staging(slot);
  writeHeader(staging, header);
  if (send.bytes > 0) std::memcpy(staging + sizeof header, send.data, send.bytes);
  stats_.whole(send.tag, tag.k, send.bytes);
  tag.k = engine().sequences().next(tag.k);
  engine().counters().eagerOut++;
  return sizeof header + send.bytes;
}

// The message waits for others, and the test of its request ends that: so it has one, though nothing else is
// awaited.
Request* SendCommImpl::sendTogether(const Send& send, TagState& tag) {
  Request* request = begin(send, tag.k);
  if (!request) return nullptr;
  const int slot = peering().eagerOut().takeSlot();
  if (sums_.concerns(tag.k)) [[unlikely]]
    sum(send, tag.k, kNoLane);
  request->departure = peering().sendEagerLater(slot, stageEager(slot, send, tag));
  return request;
}

// Done at once: the bytes are in our staging, which is not reused before the peer returned the credit.
inline Request* SendCommImpl::sendEager(const Send& send, TagState& tag) {
  if (followed_ && engine().gathersEager() && !peering().signalsAll()) [[unlikely]]
    return sendFollowed(send, tag);
  if (engine().gathersEager() && peering().followsEager(send.bytes)) return sendTogether(send, tag);
  const int slot = peering().eagerOut().takeSlot();
  if (slot < 0) [[unlikely]]
    return nullptr;
  const uint32_t k = tag.k;
  peering().sendEager(slot, stageEager(slot, send, tag));
  if (sums_.concerns(k)) [[unlikely]]
    sum(send, k, peering().eagerOut().leftBy(slot));
  // Nobody has to poll for it, but with several lanes a completion says how much each has to do.
  if (++messages_ % kEagerBetweenPolls == 0 && peering().signalsAll()) engine().progress();
  return doneSend(send.bytes);
}

// Done at once, as alone; it leaves with what follows it, or with the next poll.
Request* SendCommImpl::sendFollowed(const Send& send, TagState& tag) {
  const int slot = peering().eagerOut().takeSlot();
  if (slot < 0) return nullptr;
  const uint32_t k = tag.k;
  peering().sendEagerFollowed(slot, stageEager(slot, send, tag));
  if (sums_.concerns(k)) [[unlikely]]
    sum(send, k, peering().eagerOut().leftBy(slot));
  messages_++;
  return doneSend(send.bytes);
}

// With an object that keeps the profiler's event until the test.
Request* SendCommImpl::sendProfiled(const Send& send, TagState& tag) {
  if (!peering().eagerOut().hasSlot()) return nullptr;
  Request* request = begin(send, tag.k);
  if (!request) return nullptr;
  const int slot = peering().eagerOut().takeSlot();
  peering().sendEager(slot, stageEager(slot, send, tag));
  if (sums_.concerns(request->sequence[0])) [[unlikely]]
    sum(send, request->sequence[0], peering().eagerOut().leftBy(slot));
  return request;
}

inline bool SendCommImpl::mayLeaveEagerly(const Send& send) const {
  return peering().eagerOut().sends(send.bytes) &&
         (send.bytes == 0 || (send.memory->host && !toGpu_.load(std::memory_order_relaxed)));
}

// A small message leaves eagerly even if its CTS is here. A message that takes its CTS makes the receiver
// send CTS for the following ones too, one write each.
inline bool SendCommImpl::prefersEager(const Send& send) {
  return mayLeaveEagerly(send) && peering().eagerOut().hasSlot();
}

// The first one's message leaves eagerly.
void SendCommImpl::dropCts(TagState& tag) {
  engine().counters().crossedCts++;
  usedFirstCts(&tag);
}

// What may go either way. Null: not now, or the comm has failed.
inline Request* SendCommImpl::attempt(const Send& send) {
  readCtsChain();
  TagState& tag = tags_.at(send.tag);
  const bool eagerly = prefersEager(send);
  if (!eagerly && mayLeaveDirectly(send.bytes, send.memory)) return sendDirect(send, tag);
  if (const HeldCts cts = ctsFor(tag)) {
    if (!eagerly) return sendByCts(send, tag, cts);
    dropCts(tag);
  }
  if (!mayLeaveEagerly(send)) return nullptr;
  return send.profilerHandle ? sendProfiled(send, tag) : sendEager(send, tag);
}

// What a call returns that may not start.
Posted SendCommImpl::cannotStart(bool entered) {
  if (failed() || !entered || !life_.is(Stage::stopped)) return {!failed(), nullptr};
  const char* why = closedByPeer() ? "a message after the receiver closed the connection"
                                   : "a message after the receiver withdrew its memory";
  end({Ending::By::peer, Error(Code::remote, "sending", "to " + peering().peer()->name() + ": " + why)});
  return {false, nullptr};
}

// Which way a message goes follows from its size, mostly, and that is known before anything is entered. The
// arguments go on one by one, as so many fit into registers.
Posted SendCommImpl::isend(const void* data, size_t bytes, int tag, MemoryHandle* memory,
                           void* profilerHandle) {
  const Send send{data, bytes, static_cast<uint32_t>(tag), memory, profilerHandle};
  if (const char* why = fault(send)) [[unlikely]]
    return refuse(why);
  if (profilerHandle && asksProfiler()) [[unlikely]]
    return isendProfiled(send);
  if (!mayLeaveEagerly(send)) return sendLarge(data, bytes, send.tag, memory);
  return sendSmall(data, bytes, send.tag, memory);
}

// With several lanes it leaves alone: completions are looked for with each message there, and the one that
// follows may go by another lane.
Posted SendCommImpl::isendFollowed(const void* data, size_t bytes, int tag, MemoryHandle* memory) {
  followed_ = true;
  const Posted posted = isend(data, bytes, tag, memory, nullptr);
  followed_ = false;
  return posted;
}

void SendCommImpl::leaveNow() {
  Engine& engine = this->engine();
  if (!engine.tryEnter()) return;
  const EngineStay inside(engine);
  if (mayStart()) peering().leaveNow();
}

Posted SendCommImpl::isendProfiled(const Send& send) {
  Engine& engine = this->engine();
  if (!engine.tryEnter()) return cannotStart(false);
  const EngineStay inside(engine);
  return mayStart() ? sendEitherWay(send) : cannotStart(true);
}

Posted SendCommImpl::sendSmall(const void* data, size_t bytes, uint32_t tag, MemoryHandle* memory) {
  Engine& engine = this->engine();
  if (!engine.tryEnter()) [[unlikely]]
    return cannotStart(false);
  const EngineStay inside(engine);
  if (!mayStart()) [[unlikely]]
    return cannotStart(true);
  readCtsChain();
  TagState& state = tags_.at(tag);
  if (state.first == kNoCts) [[likely]] {
    if (Request* request = sendEager({data, bytes, tag, memory, nullptr}, state)) [[likely]]
      return {true, request};
  }
  return sendEitherWay({data, bytes, tag, memory, nullptr});
}

// The CTS or a credit may be waiting in the fabric, so there is a second attempt after a poll. That poll may
// also find the last lane lost.
Posted SendCommImpl::sendEitherWay(const Send& send) {
  for (bool polled = false;; polled = true) {
    if (Request* request = attempt(send)) return {true, request};
    if (failed()) return {false, nullptr};
    if (polled) return notNow(tags_.at(send.tag), send.tag, send.bytes);
    engine().progress();
    if (!mayStart()) return cannotStart(true);
  }
}

// Directly where the window has room for it, else by a CTS; as above.
Posted SendCommImpl::sendLarge(const void* data, size_t bytes, uint32_t tag, MemoryHandle* memory) {
  Engine& engine = this->engine();
  if (!engine.tryEnter()) [[unlikely]]
    return cannotStart(false);
  const EngineStay inside(engine);
  if (!mayStart()) [[unlikely]]
    return cannotStart(true);
  for (bool polled = false;; polled = true) {
    readCtsChain();
    TagState& state = tags_.at(tag);
    if (mayLeaveDirectly(bytes, memory)) {
      Request* request = sendDirect({data, bytes, tag, memory, nullptr}, state);
      return {request || !failed(), request};
    }
    if (const HeldCts cts = ctsFor(state)) {
      Request* request = sendByCts({data, bytes, tag, memory, nullptr}, state, cts);
      return {request || !failed(), request};
    }
    if (polled) return notNow(state, tag, bytes);
    engine.progress();
    if (!mayStart()) return cannotStart(true);
  }
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

// Sums of bytes, when the message has left: the caller changes nothing before he is told that it is sent.

void SendCommImpl::sum(const Send& send, uint32_t k, uint8_t lane) {
  if (!canSum(send.memory)) return;
  PayloadSum sum = PayloadSum::of(send.tag, k, {static_cast<const std::byte*>(send.data), send.bytes});
  sum.segmentCount = 1;
  sum.segments[0] = {lane, static_cast<uint32_t>(send.bytes)};
  addSum(sum);
}

void SendCommImpl::sum(const Request& request) {
  if (!canSum(request.memory)) return;
  PayloadSum sum = PayloadSum::of(static_cast<uint32_t>(request.tags[0]), request.sequence[0],
                                  {static_cast<const std::byte*>(request.transfer.data), request.bytes});
  sum.segmentCount = request.segmentCount;
  for (size_t i = 0; i < request.segmentCount; i++)
    sum.segments[i] = {request.segments[i].lane, request.segments[i].bytes};
  addSum(sum);
}

// They are told by whoever looks after the comms now and then, as telling costs more than a message: where
// only some are summed those that are too many are left out.
void SendCommImpl::addSum(const PayloadSum& sum) {
  if (sum.bytes == 0 || toGpu_.load(std::memory_order_relaxed)) return;
  const MustNotFail first;  // their memory
  if (sumsToTell_.full() && !sums_.concernsAll()) return;
  sumsToTell_.add(sum);
  if (sumsToTell_.full() && sums_.concernsAll()) tellSums();
}

void SendCommImpl::tellSums() {
  if (sumsToTell_.empty()) return;
  peering().tell(MessageType::checksums, SumsMessage{remoteNumber_, sumsToTell_.sums()});
  sumsToTell_.clear();
}

// Fail-over:

void SendCommImpl::resolve(Request* request, uint16_t segments, uint16_t missing) {
  uint64_t offset = 0;
  for (size_t i = 0; i < request->segmentCount; i++) {
    SegmentInFlight& segment = request->segments[i];
    const uint64_t at = offset;
    offset += segment.bytes;
    if (segment.done || !(segments >> i & 1) || request->remaining == 0) continue;
    if (missing >> i & 1) {
      writeAgain(request, i, at);
    } else {
      segment.done = true;
      if (--request->remaining == 0) onSent(request);
    }
  }
}

void SendCommImpl::writeAgain(Request* request, size_t i, uint64_t offset) {
  const Peering::Imported* target =
      request->bytes == 0 ? &kNowhere : peering().memory().imported(request->transfer.memoryId);
  SegmentInFlight& segment = request->segments[i];
  if (!target || segment.attempt >= kMostAttempts || peering().ending()) {
    if (!peering().ending())
      endByUs(Error(Code::remote, "leaving a rail",
                    format("tag %d, message %u to %s %s", request->tags[0], request->sequence[0],
                           peering().peer()->name().c_str(),
                           target ? "was lost on one rail after the other"
                                  : "is missing in memory that was withdrawn")));
    return;
  }
  Lane& lane = peering().lanes().quickest(segment.bytes);
  segment.attempt++;
  segment.lane = lane.number();
  engine().counters().segmentsAgain++;
  engine().counters().bytesAgain += segment.bytes;
  lane.carriesAgain(segment.bytes);
  postSegment(request, i, offset, lane, *target);
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

// Messages:

void SendCommImpl::onMessage(MessageType type, ByteReader* body) {
  CommMessage plain;
  ProbeMessage probe;
  CtsMessage again;
  if (type == MessageType::probe && decodeBody(body, &probe)) return answerProbe(probe);
  if (type == MessageType::ctsAgain && decodeBody(body, &again)) return takeCts(again);
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

}  // namespace weft::core
