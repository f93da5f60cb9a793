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

constexpr uint8_t kMostAttempts = 14;        // of a segment: 4 bits carry them
constexpr size_t kMostEagerTogether = 4096;  // of eager messages
constexpr uint64_t kEagerBetweenPolls = 4;   // of which each may end with the first rail

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

Posted SendCommImpl::refuse(const char* why) {
  EngineEntry in(engine(), EngineEntry::wait);
  return failSending(Code::invalidArgument, why);
}

Posted SendCommImpl::failSending(Code code, const char* why) {
  endByUs(Error(code, "sending", "to " + peering().peer()->name() + ": " + why));
  return {false, nullptr};
}

// What a call returns that may not start.
Posted SendCommImpl::cannotStart(bool entered) {
  if (failed() || !entered || !life_.is(Stage::stopped)) return {!failed(), nullptr};
  const char* why = closedByPeer() ? "a message after the receiver closed the connection"
                                   : "a message after the receiver withdrew its memory";
  end({Ending::By::peer, Error(Code::remote, "sending", "to " + peering().peer()->name() + ": " + why)});
  return {false, nullptr};
}

// CTS that have come:

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

// The first one's message leaves without it: there is a request, and nothing has left that says how far we
// have read.
void SendCommImpl::dropCts(TagState& tag) {
  engine().counters().crossedCts++;
  usedFirstCts(&tag);
}

// By CTS:

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
  Request* request =
      write(send, tag, {send.data, cts.offset(), cts.memory(), cts.slot()}, target ? *target : kNowhere);
  if (request && sums_.concerns(request->sequence[0])) [[unlikely]]
    sum(*request);
  return request;
}

// By the CTS that is first of the tag.
inline Request* SendCommImpl::write(const Send& send, TagState& tag, const Transfer& transfer,
                                    const Peering::Imported& target) {
  Request* request = begin(send, tag.k);
  if (!request) [[unlikely]]
    return nullptr;
  request->record = stats_.posted(send.tag, tag.k, send.bytes, stats::Way::rendezvous);
  request->transfer = transfer;
  usedFirstCts(&tag);
  tag.k = engine().sequences().next(tag.k);
  awaitSent(request, send);
  if (peering().lanes().mayBeSplit(send.bytes)) {
    postSegments(request, target);
  } else {
    postWhole(request, peering().lanes().quickest(send.bytes), target);
  }
  return request;
}

// The bytes go nowhere where the memory was shut meanwhile: its owner has given it up.
Request* SendCommImpl::sendPlaced(const Send& send, TagState& tag, HeldCts cts, uint32_t number,
                                  uint64_t offset) {
  if (cts.memory() != kAnyMemory || send.bytes > cts.size()) {
    failAgainst(send.tag, send.bytes, cts);
    return nullptr;
  }
  const auto found = opened_.find(number);
  const Peering::Imported* target =
      found == opened_.end() ? nullptr : peering().memory().imported(found->second.memory);
  Request* request = nullptr;
  if (!target) {
    request = write({nullptr, 0, send.tag, nullptr, nullptr}, tag, {nullptr, 0, 0, cts.slot()}, kNowhere);
  } else if (const Opened& to = found->second; offset > to.length || send.bytes > to.length - offset) {
    (void)failSending(Code::invalidArgument, "a placed message outside of the memory that was opened for it");
  } else {
    request = write(send, tag, {send.data, to.offset + offset, to.memory, cts.slot()}, *target);
  }
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

// Eagerly:

// Puts the message into its slot of the staging; the bytes that are to leave from there. From here on it does
// leave.
inline size_t SendCommImpl::stageEager(int slot, const Send& send, TagState& tag) {
  if (ctsFor(tag)) [[unlikely]]
    dropCts(tag);
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

// There is a slot. Done at once: the bytes are in our staging, which is not reused before the peer returned
// the credit.
inline Request* SendCommImpl::sendEager(const Send& send, TagState& tag) {
  if (send.profilerHandle) [[unlikely]]
    return sendProfiled(send, tag);
  if (followed_ && engine().gathersEager() && !peering().signalsAll()) [[unlikely]]
    return sendFollowed(send, tag);
  if (engine().gathersEager() && peering().follows(send.bytes, kMostEagerTogether))
    return sendTogether(send, tag);
  const int slot = peering().eagerOut().takeSlot();
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
  const uint32_t k = tag.k;
  peering().sendEagerFollowed(slot, stageEager(slot, send, tag));
  if (sums_.concerns(k)) [[unlikely]]
    sum(send, k, peering().eagerOut().leftBy(slot));
  messages_++;
  return doneSend(send.bytes);
}

// With an object that keeps the profiler's event until the test.
Request* SendCommImpl::sendProfiled(const Send& send, TagState& tag) {
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

// A message leaves directly where the receiver's window holds it. Else a small one leaves eagerly even if its
// CTS is here: one that takes its CTS makes the receiver send CTS for the following ones too, one write each.
// The CTS, a credit or a returned window may be waiting in the fabric, so there is a second attempt after a
// poll. That poll may also find the last lane lost.
Posted SendCommImpl::isend(const void* data, size_t bytes, int tagNumber, MemoryHandle* memory,
                           void* profilerHandle) {
  const Send send{data, bytes, static_cast<uint32_t>(tagNumber), memory,
                  profilerHandle && asksProfiler() ? profilerHandle : nullptr};
  if (const char* why = fault(send)) [[unlikely]]
    return refuse(why);
  Engine& engine = this->engine();
  if (!engine.tryEnter()) [[unlikely]]
    return cannotStart(false);
  const EngineStay inside(engine);
  for (bool polled = false;; polled = true) {
    if (!mayStart()) [[unlikely]]
      return cannotStart(true);
    readCtsChain();
    TagState& tag = tags_.at(send.tag);
    const HeldCts cts = ctsFor(tag);
    Request* request = nullptr;
    if (mayLeaveDirectly(bytes, memory)) {
      request = sendDirect(send, tag);
    } else if (mayLeaveEagerly(send) && peering().hasEagerSlot()) {
      request = sendEager(send, tag);
    } else if (cts) {
      request = sendByCts(send, tag, cts);
    }
    if (request || failed()) return {request != nullptr, request};
    if (polled) return notNow(tag, send.tag, bytes);
    engine.progress();
  }
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

}  // namespace weft::core
