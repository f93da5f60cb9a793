// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/recv_comm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/posting.h"

namespace weft::core {

namespace {

constexpr uint32_t kMostOpen = kMaxRequests * kMaxRecvs;

constexpr uint16_t kMostInRun = 8;

}  // namespace

RecvCommImpl::RecvCommImpl(CommOptions options)
    : CommBase(std::move(options), "receiver"), ctsRing_(engine().sequences()), unwritten_(kMostOpen) {
  recv_ = this;
  waiting_.reserve(kEagerSlotsPerPeering);
}

Result<std::unique_ptr<RecvCommImpl>> RecvCommImpl::create(CommOptions options, uint32_t remoteNumber) {
  // What can fail comes first: our caller is inside the engine, which closing a comm enters.
  TRY(mem::Block staging, options.peering->takeCtsStaging());
  auto comm = std::make_unique<RecvCommImpl>(std::move(options));
  comm->remoteNumber_ = remoteNumber;
  comm->staging_ = std::move(staging);
  const MustNotFail made;  // the engine knows the comm by now
  if (comm->sums_.concernsSome()) comm->book_.makeRoom();
  return comm;
}

Status RecvCommImpl::adopt(const OpenMessage& open) {
  TRY(peering().adopt(open.half));
  if (open.ringMemory.railBlobs.empty())
    return Error(Code::remote, "connecting", "the sender's ring has no keys");
  std::vector<Work> writes;
  for (size_t i = 0; i < peering().laneCount(); i++) {
    const Bytes& blob = peering().keyFor(i, open.ringMemory.railBlobs);
    Lane& lane = peering().lane(i);
    Work work;
    TRY(work.remote, lane.endpoint().import(blob));
    work.memory = staging_.region()->rail(lane.rail());
    peering().aside(&work, lane);
    writes.push_back(work);
  }
  ctsWrites_ = std::move(writes);
  ringOffset_ = open.ringOffset;
  engine().budget().open(&share_, static_cast<uint32_t>(peering().laneCount()));
  life_.apply(Event::joined);
  if (!peering().takesDirect()) dropWindow();
  giveBackWindow();  // of messages that were quicker than the sender's half
  return {};
}

Result<MemoryHandle*> RecvCommImpl::registerMemory(const MemoryDesc& desc) {
  const bool flushed = needsFlush(desc.kind);
  if (flushed) {
    EngineEntry in(engine(), EngineEntry::wait);
    TRY(engine().flushLanes().open());
  }
  TRY(MemoryHandle * handle, addHandle(desc, flushed ? PeerAccess::readAndWrite : PeerAccess::write));
  if (!handle->host) {
    EngineEntry in(engine(), EngineEntry::wait);
    const bool known = std::exchange(gpuMemory_, true);
    if (!known) tellGpuMemory();
  }
  return handle;
}

bool RecvCommImpl::needsFlush(MemoryKind kind) const {
  return engine().config().alwaysFlush || (kind != MemoryKind::host && !engine().regions().ordersWrites());
}

// What leaves before the sender hears of it is copied here, by the driver: fillGpu.
void RecvCommImpl::tellGpuMemory() {
  if (gpuMemory_ && life_.is(Stage::open))
    peering().tell(MessageType::gpuMemory, CommMessage{remoteNumber_, 0});
}

// What a receive is made of:

inline const char* RecvCommImpl::fault(std::span<const ReceiveSpec> receives) const {
  if (receives.empty() || receives.size() > kMaxRecvs) return "a group of receives must have 1 to 8 members";
  for (const ReceiveSpec& spec : receives) {
    if (const char* why = fault(spec)) return why;
  }
  return nullptr;
}

inline const char* RecvCommImpl::fault(const ReceiveSpec& spec) const {
  if (spec.bytes > kMaxMessageBytes) return "a receive above 1 GiB; split it";
  return memoryFault(spec.memory, this, spec.data, spec.bytes);
}

// Its comm has failed, and it is in no list any more.
void RecvCommImpl::letGoOf(ReceiveSlot* slot) {
  if (slot->isRequest) {
    slot->state = SlotState::ended;
  } else {
    engine().giveSlot(slot);
  }
}

void RecvCommImpl::closeAllSlots() {
  dropLanding();
  placedQueued_ = 0;
  tags_.each([&](uint32_t, TagState& tag) {
    while (ReceiveSlot* slot = tag.first) {
      unlink(slot, tag);
      letGoOf(slot);
    }
  });
}

// Clear to send, when:

// NCCL posts receives of a whole slot of its buffer, whatever the message's size, so room says little about
// how a message will come; what came before does. Once several came eagerly, so will the next ones, and
// CTS for them would be writes for nothing: they wait for a gap. A CTS for a receive that only an eager
// message is likely to fill waits one poll pass in any case: it may already be on its way. Other CTS wait
// for a batch while the sender has enough to do without them.
inline uint64_t RecvCommImpl::holdUntil(const ReceiveSlot& slot, const TagState& tag) const {
  if (slot.mayComeEagerly) return engine().pass() + (expectsEager() ? kEagerGap : 1);
  return senderHasEnough(tag) ? kForBatch : 0;
}

// The poll pass from which its CTS leaves, 0 for at once. CTS keep their order, so one that waits for
// a batch only does while all that wait here do the same. Only messages of its own tag put it off: they begin
// in order, so none comes while the sender needs the CTS of an earlier one.
inline uint64_t RecvCommImpl::heldUntil(const ReceiveSlot& slot, const TagState& tag) const {
  if (slot.holdUntilPass == kForBatch)
    return batchDue_ || openCount_ - advertisedCount_ - placedQueued_ != waitingForBatch_ ? 0 : kForBatch;
  return std::max(slot.holdUntilPass, tag.heldUntilPass);
}

void RecvCommImpl::batchIsDue() {
  batchDue_ = true;
  lookAtCtsFrom(engine().pass());
}

void RecvCommImpl::lookAtCtsFrom(uint64_t pass) {
  if (!ctsQueued_) engine().queueCtsWriter(this);
  ctsQueued_ = true;
  ctsDue_ = std::min(ctsDue_, pass);
  engine().ctsDueAt(pass);
}

inline void RecvCommImpl::enqueue(ReceiveSlot* slot) {
  if (unwritten_.full()) [[unlikely]]
    dropLeftBehind();
  slot->queuedAs = ++queuedCts_ << kSlotBits | slot->index;
  unwritten_.push(slot->queuedAs);
}

// The slot that still waits for this CTS. Null: it was filled meanwhile, and may serve another receive, of
// this comm or another.
inline ReceiveSlot* RecvCommImpl::queuedSlot(uint64_t entry) {
  ReceiveSlot& slot = engine().slot(entry & (kMaxSlots - 1));
  const bool waits = slot.state == SlotState::queued && slot.queuedAs == entry && slot.comm == this;
  return waits ? &slot : nullptr;
}

// One that waits long holds up the entries behind it, which would become ever more.
void RecvCommImpl::dropLeftBehind() {
  unwritten_.keepIf([&](uint64_t entry) { return queuedSlot(entry) != nullptr; });
}

// Before its CTS: eagerly, or directly.
inline bool RecvCommImpl::mayComeAhead(const ReceiveSlot& slot) const {
  if (gpuMemory_) return false;
  const EagerReceiver& eager = peering().eagerIn();
  return eager.mayArrive(slot.capacity) || window_.fits(slot.capacity) ||
         (expectsEager() && eager.mayArrive(0));
}

// What is urgent leaves by the end of the call; for the rest they are mostly looked at soon enough already.
inline void RecvCommImpl::queueCts(ReceiveSlot* slot, TagState& tag) {
  slot->mayComeEagerly = mayComeAhead(*slot);
  slot->holdUntilPass = holdUntil(*slot, tag);
  if (slot->holdUntilPass == 0) [[unlikely]]
    return queueUrgent(slot, tag);
  enqueue(slot);
  if (slot->holdUntilPass == kForBatch) {
    waitingForBatch_++;
  } else if (const uint64_t pass = heldUntil(*slot, tag); pass < ctsDue_) {
    lookAtCtsFrom(pass);
  }
}

// What cannot leave yet is looked at with each pass.
void RecvCommImpl::writeUrgent() {
  writeDueCts();
  if (!unwritten_.empty()) lookAtCtsFrom(ctsDue_);
}

// irecv:

inline void RecvCommImpl::open(TagState& tag, ReceiveSlot* slot) {
  if (!life_.is(Stage::open) || peering().halted()) [[unlikely]]
    return openLate(tag, slot);
  if (slot->memory) slot->memory->inUse++;
  append(tag, slot);
  queueCts(slot, tag);
}

// What a sender that has closed had sent needs no CTS.
void RecvCommImpl::openLate(TagState& tag, ReceiveSlot* slot) {
  if (!life_.is(Stage::stopped) || !lastAreComing()) {
    engine().giveSlot(slot);
    return failPosting(false);
  }
  slot->queuedAs = 0;
  slot->holdUntilPass = 1;  // it waits in no queue of those that have such times
  if (slot->memory) slot->memory->inUse++;
  append(tag, slot);
}

// Null: none is left, and the comm has failed.
inline ReceiveSlot* RecvCommImpl::post(const ReceiveSpec& spec, Request* request, size_t part,
                                       bool profiled) {
  ReceiveSlot* slot = engine().takeSlot();  // keeps its generation
  if (!slot) [[unlikely]] {
    failPosting(true);
    return nullptr;
  }
  TagState& tag = tags_.at(static_cast<uint32_t>(spec.tag));
  prepare(slot, spec, tag.k);
  slot->part = static_cast<uint8_t>(part);
  slot->isRequest = !request;
  slot->request = request;
  if (profiled) [[unlikely]]
    beginProfiled(request, part, spec, tag.k);
  if (tag.waiting == kNone || !takeWaiting(tag, slot)) open(tag, slot);
  tag.k = engine().sequences().next(tag.k);
  return slot;
}

void RecvCommImpl::beginProfiled(Request* request, size_t part, ReceiveSpec spec, uint32_t k) {
  request->tags[part] = spec.tag;
  request->sequence[part] = k;
  beginEvent(request, part, spec.profilerHandle, spec.bytes);
}

inline bool RecvCommImpl::mayPost(size_t count) {
  if (failed()) [[unlikely]]
    return false;
  if (openCount_ + count <= kMostOpen && !peering().suspected()) [[likely]]
    return true;
  engine().progress();
  return false;
}

inline Posted RecvCommImpl::posted(Request* request) {
  if (failed()) [[unlikely]]
    return {false, nullptr};
  if (urgent_ > 0) writeUrgent();  // CTS that are held back leave after a later poll pass
  return {true, request};
}

// Its slot is its request, unless the profiler has to be asked: its events need a request of their own.
Posted RecvCommImpl::irecvOne(void* data, size_t bytes, int tag, MemoryHandle* memory, void* profilerHandle) {
  const ReceiveSpec spec{data, bytes, tag, memory, profilerHandle};
  if (profilerHandle && asksProfiler()) [[unlikely]]
    return irecvGroup({&spec, 1}, true);
  if (const char* why = fault(spec)) [[unlikely]]
    return refuse(why);
  Engine& engine = this->engine();
  if (!engine.tryEnter()) [[unlikely]]
    return {!failed(), nullptr};
  const EngineStay inside(engine);
  if (!mayPost(1)) [[unlikely]]
    return {!failed(), nullptr};
  return posted(requestOf(post(spec, nullptr, 0, false)));
}

Posted RecvCommImpl::irecv(std::span<const ReceiveSpec> receives) {
  if (receives.size() != 1) return irecvGroup(receives, asksProfiler());
  const ReceiveSpec& one = receives[0];
  return irecvOne(one.data, one.bytes, one.tag, one.memory, one.profilerHandle);
}

Posted RecvCommImpl::irecvGroup(std::span<const ReceiveSpec> receives, bool profiled) {
  if (const char* why = fault(receives)) [[unlikely]]
    return refuse(why);
  EngineEntry in(engine(), EngineEntry::tryOnce);
  if (!in || !mayPost(receives.size())) [[unlikely]]
    return {!failed(), nullptr};
  Request* request = engine().takeRequest(RequestKind::receive, this);
  if (!request) [[unlikely]]
    return {!failed(), nullptr};
  request->count = request->remaining = static_cast<uint8_t>(receives.size());
  request->sizes.fill(0);
  for (size_t i = 0; i < receives.size(); i++) {
    const ReceiveSpec& spec = receives[i];
    (void)post(spec, request, i, profiled && spec.profilerHandle);
  }
  return posted(request);
}

// test:

// What failed once stays so, whatever still arrives.
Tested RecvCommImpl::testUnfilled(ReceiveSlot* slot) const {
  if (failed()) slot->reportedFailed = true;
  return {!slot->reportedFailed && slot->isRequest, false};
}

// Clear to send:

inline bool RecvCommImpl::mayTell(const ReceiveSlot& slot) {
  if (slot.memory && !(slot.memory->announcement && slot.memory->announcement->acknowledged)) return false;
  if (!ctsRing_.canWrite()) [[unlikely]] {
    askForPositions();
    return false;
  }
  return engine().budget().take(&share_);
}

void RecvCommImpl::askForPositions() {
  if (ctsRing_.hasOvertaken() && !readAsked_)
    peering().tell(MessageType::askRead, CommMessage{remoteNumber_, 0});
  readAsked_ = true;
}

// Into the staging of its place in the ring, from where the caller sends it by that lane.
inline uint16_t RecvCommImpl::writeCts(ReceiveSlot& slot, TagState& tag, const Lane& lane) {
  const CtsRing::Place place = ctsRing_.take();
  Cts cts;
  cts.comm = remoteNumber_;
  cts.sequence = place.sequence;
  cts.tag = slot.tag;
  cts.k = slot.k;
  cts.slot = slot.code();
  if (slot.placed) [[unlikely]] {
    cts.memory = kAnyMemory;
  } else if (slot.memory) [[likely]] {
    cts.memory = slot.memory->announcement->id;
    cts.offset = slot.memory->offsetOf(slot.data);
  }
  cts.size = slot.capacity;
  cts.next = place.next;
  core::writeCts(staging_.data() + size_t{place.position} * sizeof cts, cts);
  slot.state = SlotState::advertised;
  slot.position = place.position;
  slot.lane = lane.number();
  slot.ctsSequence = place.sequence;
  slot.advertisedAt = engine().lately();
  slot.sentAt = TimePoint{};
  stats_.told(slot.record);
  advertisedCount_++;
  tag.toldBytes += slot.capacity;
  engine().counters().ctsOut++;
  return place.position;
}

// Those that lie side by side leave in one write.
inline void RecvCommImpl::addCts(ReceiveSlot& slot, CtsRun* run) {
  if (run->count == kMostInRun || (run->count > 0 && run->first + run->count != ctsRing_.nextPosition()))
    post(run, true);
  if (run->count == 0) run->lane = &peering().lanes().quickest(sizeof(Cts));
  const uint16_t position = writeCts(slot, tags_.at(slot.tag), *run->lane);
  if (run->count++ == 0) run->first = position;
  urgent_ -= slot.holdUntilPass == 0;
  waitingForBatch_ -= slot.holdUntilPass == kForBatch;
}

// Those of placed messages, half of them together, so that most lie side by side in the ring and leave in one
// write.
void RecvCommImpl::writePlacedCts(CtsRun* run) {
  uint32_t written = 0;
  while (written < placedQueued_ && life_.is(Stage::open) && ctsRing_.canWrite())
    addCts(*placedQueue_[written++], run);
  if (written < placedQueued_ && life_.is(Stage::open)) askForPositions();
  std::copy(placedQueue_.begin() + written, placedQueue_.begin() + placedQueued_, placedQueue_.begin());
  placedQueued_ -= written;
}

// In posting order, so that a tag's CTS stay in order in the chain: a CTS that must wait holds up those
// behind it.
void RecvCommImpl::writeDueCts() {
  ctsDue_ = engine().pass() + 1;
  CtsRun run;
  while (!unwritten_.empty() && life_.is(Stage::open)) {
    if (ReceiveSlot* slot = queuedSlot(unwritten_.front())) {
      // Once one leaves, those that only waited for a batch go with it.
      const bool goesAlong = urgent_ > 0 || (run.count > 0 && !slot->mayComeEagerly);
      const uint64_t until = goesAlong ? 0 : heldUntil(*slot, tags_.at(slot->tag));
      if (until > engine().pass()) {
        ctsDue_ = until;
        break;
      }
      if (!mayTell(*slot)) break;
      addCts(*slot, &run);
    }
    unwritten_.pop();
  }
  if (placedDue()) [[unlikely]]
    writePlacedCts(&run);
  post(&run, false);
  if (unwritten_.empty() && !placedDue()) ctsDue_ = UINT64_MAX;
  if (waitingForBatch_ == 0) batchDue_ = false;
}

bool RecvCommImpl::writeAllCts() {
  writeDueCts();
  ctsQueued_ = (!unwritten_.empty() || placedDue()) && !failed();
  if (!ctsQueued_) ctsDue_ = UINT64_MAX;
  return ctsQueued_;
}

// Where no CTS waits before it, and none of its group may go with it, it leaves at once.
void RecvCommImpl::queueUrgent(ReceiveSlot* slot, TagState& tag) {
  if (!slot->isRequest || !unwritten_.empty() || !life_.is(Stage::open) || !mayTell(*slot)) {
    urgent_++;
    return enqueue(slot);
  }
  Lane& lane = peering().lanes().quickest(sizeof(Cts));
  sendCts(lane, writeCts(*slot, tag, lane), 1, false);
}

void RecvCommImpl::post(CtsRun* run, bool more) {
  if (run->count == 0) return;
  sendCts(*run->lane, run->first, run->count, more);
  run->count = 0;
}

inline void RecvCommImpl::sendCts(Lane& lane, uint16_t first, uint16_t count, bool more) {
  const size_t offset = size_t{first} * sizeof(Cts);
  const size_t bytes = size_t{count} * sizeof(Cts);
  Work& work = ctsWrites_[lane.number()];
  work.local = staging_.data() + offset;
  work.length = bytes;
  work.remoteOffset = ringOffset_ + offset;
  work.context = withBytes(work.context, bytes);
  engine().counters().ctsWrites++;
  peering().submit(lane, work, more);
}

// Arrivals:

void RecvCommImpl::onSegment(ReceiveSlot& slot, ReceivedNote note, uint64_t length) {
  const auto bit = static_cast<uint16_t>(1u << note.segment());
  const bool first = note.kind() == NoteKind::segment && !((slot.arrived | slot.asked) & bit);
  if (!first && !awaited(slot, bit, note.kind())) [[unlikely]] {
    engine().counters().duplicateNotes++;
    return;
  }
  const bool consistent = slot.segments == 0 || slot.segments == note.segments();
  if (!consistent || slot.received + length > slot.capacity) [[unlikely]]
    return overrun(slot, note, length);
  slot.segments = static_cast<uint8_t>(note.segments());
  slot.arrived |= bit;
  slot.received += length;
  if (slot.arrived != (1u << slot.segments) - 1) return stats_.begun(slot.record);
  ctsRing_.done(slot.position, slot.ctsSequence);
  if (eagerInARow_ > 0 && !slot.placed) cameByCts();
  unlink(&slot, tags_.at(slot.tag));
  fulfil(&slot, slot.received, stats::Way::rendezvous);
  messageArrived();
}

// The next ones will, too, so what was held back for eager ones leaves.
void RecvCommImpl::cameByCts() {
  eagerInARow_ = 0;
  const uint64_t now = engine().pass();
  tags_.each([](uint32_t, TagState& tag) { tag.heldUntilPass = 0; });
  eachOpen([&](ReceiveSlot& slot) {
    if (slot.holdUntilPass != kForBatch) slot.holdUntilPass = std::min(slot.holdUntilPass, now);
  });
  lookAtCtsFrom(engine().pass());
}

// Of a segment that was asked for again only the answer counts: it alone is not followed by another write.
bool RecvCommImpl::awaited(const ReceiveSlot& slot, uint16_t bit, NoteKind kind) {
  if (slot.arrived & bit) return false;
  if (!(slot.asked & bit)) return kind == NoteKind::segment;
  return kind == (slot.askedOdd & bit ? NoteKind::againOdd : NoteKind::againEven);
}

}  // namespace weft::core
