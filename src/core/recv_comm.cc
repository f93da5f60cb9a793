// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/recv_comm.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/reserve.h"

namespace weft::core {

namespace {

constexpr uint32_t kMostOpen = kMaxRequests * kMaxRecvs;

constexpr uint32_t kEagerGap = 64;  // poll passes: tens of microseconds for who polls without a pause

// A sender with so much to write does not miss a line that comes a little later, together with others. It
// covers a round trip of 4 us at 50 GB/s.
constexpr uint64_t kAheadBytes = 256 << 10;
constexpr uint32_t kBatchPasses = 32;
constexpr uint16_t kMostInRun = 8;

uint32_t slotCode(uint32_t index, uint32_t generation) {
  return index | generation << kSlotBits;
}

}  // namespace

RecvCommImpl::RecvCommImpl(CommOptions options)
    : CommBase(std::move(options)), lines_(engine().sequences()), unwritten_(kMostOpen) {
  waiting_.reserve(kEagerSlotsPerPeering);
  waitingFree_.reserve(kEagerSlotsPerPeering);
}

Result<std::unique_ptr<RecvCommImpl>> RecvCommImpl::create(CommOptions options, uint32_t remoteNumber) {
  // What can fail comes first: our caller is inside the engine, which closing a comm enters.
  TRY(mem::Block staging, options.engine->arena().take(kRingBytes));
  auto comm = std::make_unique<RecvCommImpl>(std::move(options));
  comm->remoteNumber_ = remoteNumber;
  comm->staging_ = std::move(staging);
  return comm;
}

RecvCommImpl::~RecvCommImpl() {
  const MustNotFail closing;
  {
    EngineEntry in(engine(), EngineEntry::wait);
    closing_ = true;
  }
  if (openCount_ > 0 && !cancelReceives()) fence();
  {
    EngineEntry in(engine(), EngineEntry::wait);
    closeAllSlots();
    dropWaiting();
    if (finishAsked_) answerFinish();
  }
  detach();
}

Status RecvCommImpl::onOpen(const OpenMessage& open) {
  remoteNumber_ = open.sender;
  TRY(peering().adopt(open.half));
  if (open.ringMemory.railBlobs.empty())
    return Error(Code::remote, "connecting", "the sender's ring has no keys");
  for (size_t i = 0; i < peering().laneCount(); i++) {
    const Bytes& blob = open.ringMemory.railBlobs[i % open.ringMemory.railBlobs.size()];
    TRY(ringTarget_[i], peering().lane(i).endpoint().import(blob));
  }
  ringOffset_ = open.ringOffset;
  opened_ = true;
  return {};
}

Result<MemoryHandle*> RecvCommImpl::registerMemory(const MemoryDesc& desc) {
  if (engine().config().alwaysFlush || desc.kind != MemoryKind::host) {
    EngineEntry in(engine(), EngineEntry::wait);
    TRY(engine().openFlushLanes());
  }
  return addHandle(desc);
}

// irecv:

bool RecvCommImpl::valid(std::span<const ReceiveSpec> receives) {
  const char* why = nullptr;
  if (receives.empty() || receives.size() > kMaxRecvs) why = "a group of receives must have 1 to 8 members";
  for (const ReceiveSpec& spec : receives) {
    if (spec.bytes > kMaxMessageBytes) why = "a receive above 1 GiB; split it";
    if (!why) why = memoryFault(spec.memory, this, spec.data, spec.bytes);
  }
  if (why)
    fail(Error(Code::invalidArgument, "posting a receive", "from " + peering().peer()->name() + ": " + why));
  return !why;
}

Posted RecvCommImpl::irecv(std::span<const ReceiveSpec> receives, bool earlyDone) {
  EngineEntry in(engine(), EngineEntry::tryOnce);
  if (failed() || (in && !valid(receives))) return {false, nullptr};
  if (!in) return {};
  if (openCount_ + receives.size() > kMostOpen) {
    engine().progress();
    return {!failed(), nullptr};
  }
  Request* request = engine().takeRequest(RequestKind::receive, this);
  if (!request) return {};
  request->count = request->remaining = static_cast<uint8_t>(receives.size());
  request->earlyDone = earlyDone && receives.size() == 1;
  for (size_t i = 0; i < receives.size(); i++) post(request, static_cast<int>(i), receives[i]);
  if (failed()) return {false, nullptr};
  if (urgent_ > 0) engine().flush();  // lines that are held back leave after the next poll pass
  return {true, request};
}

void RecvCommImpl::post(Request* request, int part, const ReceiveSpec& spec) {
  const auto i = static_cast<size_t>(part);
  TagState& tag = tags_.at(static_cast<uint32_t>(spec.tag));
  request->tags[i] = spec.tag;
  request->sizes[i] = 0;
  request->sequence[i] = tag.k;
  beginEvent(request, part, spec.profilerHandle, {false, options_.device, spec.tag, spec.bytes, tag.k});
  if (!takeWaiting(tag, request, part, spec)) {
    const uint32_t index = engine().takeSlot();
    if (peerClosed_ || peering().failure()) {
      if (index != Pool<ReceiveSlot>::kNone) engine().giveSlot(index);
      fail(Error(Code::remote, "posting a receive",
                 peering().peer()->name() + " closed the connection and sent nothing more"));
    } else if (index == Pool<ReceiveSlot>::kNone) {
      fail(Error(Code::resources, "posting a receive", "the engine has 262144 receives open"));
    } else {
      openSlot(index, tag, request, part, spec);
    }
  }
  tag.k = engine().sequences().next(tag.k);
}

void RecvCommImpl::openSlot(uint32_t index, TagState& tag, Request* request, int part,
                            const ReceiveSpec& spec) {
  ReceiveSlot& slot = engine().slot(index);  // keeps its generation
  slot.state = SlotState::queued;
  slot.part = static_cast<uint8_t>(part);
  slot.segments = 0;
  slot.arrived = slot.asked = slot.askedOdd = 0;
  slot.received = 0;
  slot.next = kNoSlot;
  slot.sentAt = TimePoint{};
  slot.tag = static_cast<uint32_t>(spec.tag);
  slot.k = tag.k;
  slot.capacity = spec.bytes;
  slot.data = spec.data;
  slot.comm = this;
  slot.request = request;
  slot.memory = spec.bytes > 0 ? spec.memory : nullptr;
  if (slot.memory) slot.memory->inUse++;
  openCount_++;
  slot.previous = tag.last;
  if (tag.last == kNoSlot) {
    tag.first = index;
  } else {
    engine().slot(tag.last).next = index;
  }
  tag.last = index;
  slot.mayComeEagerly = peering().takesEager() && spec.bytes <= peering().ownEagerMax();
  slot.holdUntilPass = holdUntil(slot.mayComeEagerly);
  urgent_ += slot.holdUntilPass == 0;
  unwritten_.push(slotCode(index, slot.generation));
  if (!linesQueued_) engine().queueLines(this);
  linesQueued_ = true;
}

void RecvCommImpl::closeSlot(uint32_t index) {
  ReceiveSlot& slot = engine().slot(index);
  TagState& tag = tags_.at(slot.tag);
  (slot.previous == kNoSlot ? tag.first : engine().slot(slot.previous).next) = slot.next;
  (slot.next == kNoSlot ? tag.last : engine().slot(slot.next).previous) = slot.previous;
  openCount_--;
  if (slot.state == SlotState::queued && slot.holdUntilPass == 0) urgent_--;
  if (slot.state == SlotState::told) {
    toldCount_--;
    toldBytes_ -= slot.capacity;
    engine().returnBudget(static_cast<uint32_t>(peering().laneCount()));
  }
  if (slot.memory) slot.memory->inUse--;
  engine().giveSlot(index);
}

void RecvCommImpl::closeAllSlots() {
  tags_.each([&](uint32_t, TagState& tag) {
    while (tag.first != kNoSlot) closeSlot(tag.first);
  });
}

uint32_t RecvCommImpl::findOpen(uint32_t tag, uint32_t k) {
  uint32_t index = tags_.at(tag).first;
  while (index != kNoSlot && engine().slot(index).k != k) index = engine().slot(index).next;
  return index;
}

// Clear to send:

// Lines for receives that an eager message could fill wait one poll pass: it may already be on its way.
// Others wait for company while the sender has enough to do without them.
uint64_t RecvCommImpl::holdUntil(bool mayComeEagerly) const {
  if (mayComeEagerly) return engine().pass() + 1;
  return senderHasEnough() ? engine().pass() + kBatchPasses : 0;
}

// As many receives as wait here, and what a round trip takes to use up.
bool RecvCommImpl::senderHasEnough() const {
  return toldBytes_ >= kAheadBytes && toldCount_ * 2 >= openCount_;
}

// In posting order, so that a tag's lines stay in order in the chain: a line that must wait holds up those
// behind it.
bool RecvCommImpl::writeLines() {
  LineRun run;
  while (!unwritten_.empty() && !failed() && opened_) {
    const uint32_t index = unwritten_.front() & (kMaxSlots - 1);
    ReceiveSlot& slot = engine().slot(index);
    // Filled meanwhile, and perhaps used again: then the code differs.
    if (slot.state == SlotState::queued && slotCode(index, slot.generation) == unwritten_.front()) {
      // Once one leaves, those that only waited for company go with it.
      const bool goesAlong = run.count > 0 && !slot.mayComeEagerly;
      if (urgent_ == 0 && !goesAlong && heldBack(slot)) break;
      if (!mayTell(slot)) break;
      writeLine(slot, index, &run);
    }
    unwritten_.pop();
  }
  post(&run, false);
  linesQueued_ = !unwritten_.empty() && !failed();
  return linesQueued_;
}

// While messages keep coming eagerly, so will the next ones, and their lines would be writes for nothing. A
// request that is said done early may not be polled for, so its line does not wait for many passes.
bool RecvCommImpl::heldBack(const ReceiveSlot& slot) const {
  const uint64_t pass = engine().pass();
  const bool polledFor = slot.request && !slot.request->earlyDone;
  if (slot.mayComeEagerly) return slot.holdUntilPass > pass || (polledFor && eagerUntilPass_ > pass);
  return polledFor && slot.holdUntilPass > pass && senderHasEnough();
}

bool RecvCommImpl::mayTell(const ReceiveSlot& slot) {
  if (slot.memory && !(slot.memory->announcement && slot.memory->announcement->acknowledged)) return false;
  if (!lines_.canWrite()) {
    if (lines_.hasOvertaken() && !readAsked_)
      peering().tell(MessageType::askRead, CommMessage{remoteNumber_, 0});
    readAsked_ = true;
    return false;
  }
  return engine().takeBudget(static_cast<uint32_t>(peering().laneCount()));
}

void RecvCommImpl::writeLine(ReceiveSlot& slot, uint32_t index, LineRun* run) {
  const LineRing::Place place = lines_.take();
  CtsLine line;
  line.comm = remoteNumber_;
  line.sequence = place.sequence;
  line.tag = slot.tag;
  line.k = slot.k;
  line.memory = slot.memory ? slot.memory->announcement->id : 0;
  line.slot = slotCode(index, slot.generation);
  line.offset = slot.memory ? slot.memory->region->offsetOf(slot.data) : 0;
  line.size = slot.capacity;
  line.next = place.next;
  seal(&line);
  std::memcpy(staging_.data() + size_t{place.position} * sizeof line, &line, sizeof line);
  if (run->count == kMostInRun || run->first + run->count != place.position) post(run, true);
  if (run->count == 0) {
    run->first = place.position;
    run->lane = &peering().quickestLane(sizeof line);
  }
  run->count++;
  if (slot.holdUntilPass == 0) urgent_--;
  slot.state = SlotState::told;
  slot.position = place.position;
  slot.lane = run->lane->number();
  slot.ctsSequence = place.sequence;
  slot.toldAt = engine().now();
  toldCount_++;
  toldBytes_ += slot.capacity;
  engine().counters().linesOut++;
}

void RecvCommImpl::post(LineRun* run, bool more) {
  if (run->count == 0) return;
  const size_t offset = size_t{run->first} * sizeof(CtsLine);
  Work work;
  work.local = staging_.data() + offset;
  work.length = run->count * sizeof(CtsLine);
  work.memory = staging_.region()->rail(run->lane->rail());
  work.remote = ringTarget_[run->lane->number()];
  work.remoteOffset = ringOffset_ + offset;
  peering().aside(&work, *run->lane);
  peering().submit(*run->lane, work, more);
  engine().counters().lineWrites++;
  run->count = 0;
}

// Arrivals:

void RecvCommImpl::onSegment(uint32_t slotIndex, const Note& note, uint64_t length) {
  ReceiveSlot& slot = engine().slot(slotIndex);
  const auto bit = static_cast<uint16_t>(1u << note.segment);
  if (((slot.arrived | slot.asked) & bit || note.kind != NoteKind::segment) &&
      !awaited(slot, bit, note.kind)) {
    engine().counters().duplicateNotes++;
    return;
  }
  const bool consistent = slot.segments == 0 || slot.segments == note.segments;
  if (!consistent || slot.received + length > slot.capacity) {
    failBothSides(
        Error(Code::remote, "receiving",
              format("%s wrote segment %u of %u with %llu bytes into a receive of %llu that has %llu",
                     peering().peer()->name().c_str(), note.segment, note.segments,
                     static_cast<unsigned long long>(length), static_cast<unsigned long long>(slot.capacity),
                     static_cast<unsigned long long>(slot.received))));
    return;
  }
  slot.segments = static_cast<uint8_t>(note.segments);
  slot.arrived |= bit;
  slot.received += length;
  if (std::popcount(slot.arrived) != slot.segments) return;
  lines_.done(slot.position, slot.ctsSequence);
  if (slot.mayComeEagerly) eagerUntilPass_ = 0;  // it could have come eagerly and did not
  Request* request = slot.request;
  const int part = slot.part;
  const uint64_t bytes = slot.received;
  closeSlot(slotIndex);
  completePart(request, part, bytes);
  messageArrived();
}

// Of a segment that was asked for again only the answer counts: it alone is not followed by another write.
bool RecvCommImpl::awaited(const ReceiveSlot& slot, uint16_t bit, NoteKind kind) {
  if (slot.arrived & bit) return false;
  if (!(slot.asked & bit)) return kind == NoteKind::segment;
  return kind == (slot.askedOdd & bit ? NoteKind::againOdd : NoteKind::againEven);
}

void RecvCommImpl::completePart(Request* request, int part, uint64_t bytes) {
  if (!request) return;  // said done early and handed back
  const auto i = static_cast<size_t>(part);
  request->sizes[i] = static_cast<int>(bytes);
  request->remaining--;
  endEvent(request, part, {false, options_.device, request->tags[i], bytes, request->sequence[i]});
}

void RecvCommImpl::messageArrived() {
  arrived_++;
  if (finishAsked_) answerFinish();
}

void RecvCommImpl::tooLarge(uint32_t tag, uint32_t k, uint64_t sent, uint64_t room) {
  failBothSides(Error(Code::invalidArgument, "matching a message",
                      format("tag %u, message %u: %llu bytes sent by %s to a receive of %llu", tag, k,
                             static_cast<unsigned long long>(sent), peering().peer()->name().c_str(),
                             static_cast<unsigned long long>(room))));
}

void RecvCommImpl::onEager(uint32_t eagerSlot, const EagerHeader& header, const std::byte* payload) {
  lines_.readUpTo(header.ctsRead);
  readAsked_ = false;
  const uint32_t index = findOpen(header.tag, header.k);
  if (index == kNoSlot) return keepWaiting(eagerSlot, header);
  eagerUntilPass_ = engine().pass() + kEagerGap;
  ReceiveSlot& slot = engine().slot(index);
  if (!fill(slot.data, slot.capacity, header, payload)) return;
  if (slot.state == SlotState::told) lines_.overtaken(slot.position, slot.ctsSequence, slot.lane);
  Request* request = slot.request;
  const int part = slot.part;
  closeSlot(index);
  peering().freeEagerSlot(eagerSlot);
  completePart(request, part, header.size);
  messageArrived();
}

bool RecvCommImpl::fill(void* to, uint64_t room, const EagerHeader& header, const std::byte* payload) {
  if (header.size > room) {
    tooLarge(header.tag, header.k, header.size, room);
    return false;
  }
  if (header.size > 0) copyLines(static_cast<std::byte*>(to), payload, header.size);
  return true;
}

// A message that was here before, in another use of a slot, is a sender's mistake: counted and dropped. On a
// comm that failed it may be one whose receive was cancelled. The slot serves other comms: it is returned.
void RecvCommImpl::keepWaiting(uint32_t eagerSlot, const EagerHeader& header) {
  TagState& tag = tags_.at(header.tag);
  if (failed()) return peering().freeEagerSlot(eagerSlot);
  uint16_t same = tag.waiting;
  while (same != kNone && waiting_[same].k != header.k) same = waiting_[same].next;
  if (same != kNone || engine().sequences().before(header.k, tag.k)) {
    engine().counters().duplicateNotes++;
    return peering().freeEagerSlot(eagerSlot);
  }
  uint16_t index;
  if (waitingFree_.empty()) {
    index = static_cast<uint16_t>(waiting_.size());
    waiting_.emplace_back();
  } else {
    index = waitingFree_.back();
    waitingFree_.pop_back();
  }
  waiting_[index] = {eagerSlot, header.k, header.size, tag.waiting};
  tag.waiting = index;
  messageArrived();
}

bool RecvCommImpl::takeWaiting(TagState& tag, Request* request, int part, const ReceiveSpec& spec) {
  uint16_t* link = &tag.waiting;
  while (*link != kNone && waiting_[*link].k != tag.k) link = &waiting_[*link].next;
  if (*link == kNone) return false;
  const uint16_t index = *link;
  const Waiting found = waiting_[index];
  *link = found.next;
  waitingFree_.push_back(index);
  EagerHeader header;
  header.tag = static_cast<uint32_t>(spec.tag);
  header.k = found.k;
  header.size = found.size;
  const std::byte* payload = peering().eagerArrived(found.eagerSlot) + sizeof(EagerHeader);
  const bool fits = fill(spec.data, spec.bytes, header, payload);
  peering().freeEagerSlot(found.eagerSlot);
  if (fits) completePart(request, part, found.size);
  return true;
}

void RecvCommImpl::dropWaiting() {
  tags_.each([&](uint32_t, TagState& tag) {
    for (uint16_t i = tag.waiting; i != kNone; i = waiting_[i].next)
      peering().freeEagerSlot(waiting_[i].eagerSlot);
    tag.waiting = kNone;
  });
}

// An early-done request goes back to NCCL while its slot stays until the data is here.
void RecvCommImpl::finishRequest(Request* request, int* sizes) {
  if (request->kind == RequestKind::flush) return;
  for (size_t i = 0; sizes && i < request->count; i++) sizes[i] = request->sizes[i];
  if (request->remaining == 0) return;
  eachOpen([&](ReceiveSlot& slot) {
    if (slot.request == request) slot.request = nullptr;
  });
  endEvent(request, 0, {false, options_.device, request->tags[0], 0, request->sequence[0]});
}

Posted RecvCommImpl::iflush(std::span<const ReceiveSpec> received) {
  EngineEntry in(engine(), EngineEntry::tryOnce);
  if (failed()) return {false, nullptr};
  const ReceiveSpec* last = nullptr;
  for (const ReceiveSpec& spec : received) {
    const bool needed =
        spec.memory && (engine().config().alwaysFlush || spec.memory->region->kind() != MemoryKind::host);
    if (spec.bytes > 0 && needed) last = &spec;
  }
  if (!last) return {};
  // A null request means "nothing to wait for" here, so not entering must not look like it.
  if (!in) engine().enterWaiting();
  Request* request = engine().takeRequest(RequestKind::flush, this);
  if (!request) {
    fail(Error(Code::resources, "flushing",
               "no request is left; test what is in flight before the next flush"));
  } else if (!engine().postFlush(request, last->memory, last->data)) {
    engine().giveRequest(request);
    request = nullptr;
    fail(Error(Code::system, "flushing", "the loopback lane of " + engine().deviceName() + " is not up"));
  }
  if (!in) engine().leave();
  return {request != nullptr, request};
}

}  // namespace weft::core
