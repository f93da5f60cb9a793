// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>

#include "src/base/lines.h"
#include "src/core/comm.h"
#include "src/core/cts_ring.h"
#include "src/core/tag_table.h"

// The receiving end of a connection: posts receives as slots of the engine, tells the sender where they are
// by CTS, counts segments, and takes what came eagerly.
namespace weft::core {

class RecvCommImpl final : public CommBase, public RecvComm {
 public:
  static Result<std::unique_ptr<RecvCommImpl>> create(CommOptions options, uint32_t remoteNumber);
  explicit RecvCommImpl(CommOptions options);

  // RecvComm:
  void close() override { CommBase::close(); }
  void keep(std::shared_ptr<const void> memory) override { keepMemory(std::move(memory)); }
  int device() const override { return options_.device; }
  stats::OneSided* oneSided() override { return oneSidedCounters(); }
  Result<MemoryHandle*> registerMemory(const MemoryDesc& desc) override;
  Status deregisterMemory(MemoryHandle* handle) override { return removeHandle(handle); }
  Tested test(Request* request, int* sizes) override { return testRequest(request, sizes); }
  Error error() const override { return stickyError(); }
  bool hasFailed() const override { return failed(); }
  bool isLeft() override { return isLeftByPeer(); }
  void fail(const std::string& why) override { endForOwner(why); }
  Posted irecv(std::span<const ReceiveSpec> receives) override;
  Posted irecvOne(void* data, size_t bytes, int tag, MemoryHandle* memory, void* profilerHandle) override;
  Posted iflush(std::span<const ReceiveSpec> received) override;
  void mayStand() override { mayStand_.store(true, std::memory_order_relaxed); }
  void mayIdle() override {
    mayStand();
    mayIdle_.store(true, std::memory_order_relaxed);
  }
  void mayChange() override { sumNothing(); }
  // Placed messages, in recv_comm_placed.cc:
  bool openMemory(MemoryHandle* handle, const void* at, size_t bytes, uint32_t number) override;
  void shutMemory(MemoryHandle* handle) override;
  bool isShut(MemoryHandle* handle) override;
  Posted irecvPlaced(size_t most, int tag) override;

  // CommBase:
  bool busy() const override {
    return awaitedCount() + landingCount_ > 0 || (other_ == OtherEnd::settled && !hasAll());
  }
  void watch(TimePoint now) override;
  CommReport describe() override;
  void noteWaits(WaitLook* look) override;
  void onMessage(MessageType type, ByteReader* body) override;
  void onPeerClosed(std::optional<uint64_t> sent) override;
  bool needsPeer() const override {
    return awaitedCount() + landingCount_ > 0 || !(closedByPeer() || hasAll());
  }

  void finishRequest(Request* request, int* sizes) {  // it is done, and NCCL hears of it
    for (size_t i = 0; sizes && i < request->count; i++) sizes[i] = request->sizes[i];
  }
  static Tested testSlot(ReceiveSlot* slot, int* sizes,  // that is its own request; testing.h
                         bool polls = true);
  void onSegment(ReceiveSlot& slot, ReceivedNote note, uint64_t length);
  void onEager(uint32_t eagerSlot, const EagerHeader& header, const std::byte* payload);
  void loseEager(uint32_t eagerSlot);  // it could not be taken, and the comm has ended
  // Direct messages, in recv_comm_direct.cc:
  uint32_t takeWindow();  // what the sender may use, once, when the connection is made
  Place place(const DirectHeader& header, uint64_t length, bool mayWait);
  void directLanded(ReceiveSlot* slot);
  void earlyLanded(uint32_t index);
  void goOn(PutOffFlush* flush);
  const mem::Block& staging() const { return staging_; }
  bool writeAllCts();                          // false: none left to write
  uint64_t ctsDue() const { return ctsDue_; }  // the poll pass from which that is worth a look again
  void tellCts(uint8_t lane);                  // those that left by a lane that is fenced
  bool mayGetMore() const { return !hasAll(); }

 private:
  struct Waiting {    // a message nobody has posted a receive for
    uint32_t at = 0;  // its eager slot, or its index among the early ones
    bool early = false;
    uint32_t k = 0;
    uint32_t size = 0;
    uint32_t previous = kNone, next = kNone;
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint8_t kEagerRun = 8;
  static constexpr uint64_t kNotTold = UINT64_MAX;

  struct TagState {
    uint32_t k = 0;            // of the next receive
    uint32_t waiting = kNone;  // messages that came early, in the order of k
    uint32_t waitingLast = kNone;
    ReceiveSlot* first = nullptr;  // posted and not filled, oldest first
    ReceiveSlot* last = nullptr;
    uint64_t toldBytes = 0;      // room of those that the sender may write
    uint64_t heldUntilPass = 0;  // CTS are held back until then, as messages keep coming ahead of theirs
    Standing standing;           // of the first
  };

  struct CtsRun {  // CTS that lie side by side and leave in one write
    uint16_t first = 0;
    uint16_t count = 0;
    Lane* lane = nullptr;
  };

  void onOpen(const OpenMessage& open);
  uint32_t awaitedCount() const { return openCount_ - placedOpen_; }  // posted by somebody who waits
  bool placedUpTo(uint32_t k);
  bool landsNoMore(MemoryHandle* handle);
  bool waitUntilShut(MemoryHandle* handle);
  void startShutting(MemoryHandle* handle);
  void takeShut(const ShutMemoryMessage& message);
  bool placedDue() const { return placedQueued_ * 2 >= kPlacedAtOnce; }
  [[gnu::noinline]] void writePlacedCts(CtsRun* run);
  void letGoOfPlaced();
  void giveBackStanding();
  bool needsFlush(MemoryKind kind) const;
  bool mayHaveCome() const;
  [[gnu::noinline]] Request* beginFlush(const mem::RegionRef& region, uint64_t offset);
  void tellGpuMemory();
  Status adopt(const OpenMessage& open);
  const char* fault(std::span<const ReceiveSpec> receives) const;
  const char* fault(const ReceiveSpec& spec) const;
  [[gnu::cold]] Posted refuse(const char* why);
  [[gnu::noinline]] Posted irecvGroup(std::span<const ReceiveSpec> receives, bool profiled);
  bool mayPost(size_t count);
  Posted posted(Request* request);
  [[gnu::cold]] void beginProfiled(Request* request, size_t part, ReceiveSpec spec, uint32_t k);
  ReceiveSlot* post(const ReceiveSpec& spec, Request* request, size_t part, bool profiled);
  [[gnu::noinline]] bool takeWaiting(TagState& tag, ReceiveSlot* slot);
  void prepare(ReceiveSlot* slot, const ReceiveSpec& spec, uint32_t k);
  void append(TagState& tag, ReceiveSlot* slot);
  void open(TagState& tag, ReceiveSlot* slot);
  [[gnu::cold, gnu::noinline]] void openLate(TagState& tag, ReceiveSlot* slot);
  [[gnu::cold]] void failPosting(bool noSlot);
  void queueCts(ReceiveSlot* slot, TagState& tag);
  void enqueue(ReceiveSlot* slot);
  ReceiveSlot* queuedSlot(uint64_t entry);
  [[gnu::noinline]] void dropLeftBehind();
  [[gnu::noinline]] void queueUrgent(ReceiveSlot* slot, TagState& tag);
  [[gnu::noinline]] void writeUrgent();
  void writeDueCts();
  [[gnu::noinline]] void lookAtCtsFrom(uint64_t pass);
  void unlink(ReceiveSlot* slot, TagState& tag);
  void fulfil(ReceiveSlot* slot, uint64_t bytes, stats::Way way);
  [[gnu::noinline]] Tested testUnfilled(ReceiveSlot* slot) const;
  void closeAllSlots();
  [[gnu::cold, gnu::noinline]] bool isAsSent(const ReceiveSlot& slot, uint64_t bytes);
  void takeSums(const SumsMessage& message);
  [[gnu::cold]] void corrupt(const Corruption& found);
  void letGoOf(ReceiveSlot* slot);
  template <class Visit>
  void eachOpen(Visit visit);
  static ReceiveSlot* findOpen(const TagState& tag, uint32_t k);
  [[gnu::cold]] void refuseWaiting(uint32_t eagerSlot);
  [[gnu::noinline]] void keepWaiting(uint32_t eagerSlot, uint32_t tag, uint32_t k, uint32_t size);
  bool fill(const ReceiveSlot& slot, const EagerHeader& header, const std::byte* payload);
  [[gnu::cold]] bool fillGpu(const ReceiveSlot& slot, const EagerHeader& header, const std::byte* payload);
  void completePart(Request* request, size_t part, uint64_t bytes);
  void messageArrived();
  [[gnu::cold]] void overrun(const ReceiveSlot& slot, ReceivedNote note, uint64_t length);
  static bool awaited(const ReceiveSlot& slot, uint16_t bit, NoteKind kind);
  uint64_t holdUntil(const ReceiveSlot& slot, const TagState& tag) const;
  bool expectsEager() const { return eagerInARow_ == kEagerRun; }
  [[gnu::noinline]] void cameByCts();
  bool senderHasEnough(const TagState& tag) const;
  uint64_t heldUntil(const ReceiveSlot& slot, const TagState& tag) const;
  [[gnu::noinline]] void batchIsDue();
  bool mayTell(const ReceiveSlot& slot);
  [[gnu::cold]] void askForPositions();
  uint16_t writeCts(ReceiveSlot& slot, TagState& tag, const Lane& lane);  // its position in the ring
  void addCts(ReceiveSlot& slot, CtsRun* run);
  void post(CtsRun* run, bool more);
  void sendCts(Lane& lane, uint16_t first, uint16_t count, bool more);
  void tooLarge(uint32_t tag, uint32_t k, uint64_t sent, uint64_t room);
  void answerProbed(const ProbeMessage& answer);
  void takeTotal(uint64_t sent);
  void tellReceivedAll();
  [[gnu::cold]] void allAreHere();
  void nothingMoreComes();
  [[gnu::cold]] void watchLast(TimePoint now);
  [[gnu::cold]] void endForLost();
  void explain(const ReceiveSlot& slot, Wait* wait) const;
  void noteLanding(bool counts, WaitLook* look);
  void stop();
  bool cancelReceives();
  [[gnu::cold]] void endWithdrawn();
  // The sender writes no more, and all that it wrote is here.
  bool hasAll() const { return arrived_ >= sent_; }
  bool leftUnanswered() const {
    return closedByPeer() && sent_ == kNotTold;
  }  // how much it wrote nobody will say
  // Of what a sender wrote that has closed some is not here, and lanes stand by which it may come.
  bool lastAreComing() const {
    return closedByPeer() && sent_ != kNotTold && !hasAll() && !peering().ending();
  }
  void dropWaiting();
  bool mayBeWritten();
  void dropLanding();
  uint32_t lastUpTo(const TagState& tag, uint32_t k) const;
  bool wasHere(const TagState& tag, uint32_t k) const;
  void makeRoomForWaiting();
  void addWaiting(TagState& tag, Waiting waiting);
  Waiting removeFirst(TagState& tag);
  [[gnu::noinline]] void takeEarly(uint32_t index, ReceiveSlot* slot);
  Place placeEarly(const DirectHeader& header, uint32_t size, ReceiveSlot* slot);
  Place drop(uint64_t length);
  void claim(ReceiveSlot* slot, TagState& tag, uint64_t length);
  void land(ReceiveSlot* slot, uint64_t length);
  void unland(ReceiveSlot* slot);
  void finishLanding(ReceiveSlot* slot, stats::Way way);
  void fillFromEarly(uint32_t index);
  void giveBackWindow();
  void dropWindow();
  bool mayComeAhead(const ReceiveSlot& slot) const;
  void stopUsing(MemoryHandle* handle) override;
  std::optional<Event> closingEvent() override;
  void askOther() override { peering().tell(MessageType::cancel, CommMessage{remoteNumber_, 0}); }
  void letGo() override;
  uint64_t total() const override { return 0; }

  CtsRing ctsRing_;
  mem::Block staging_;           // CTS are written from here, position by position
  std::vector<Work> ctsWrites_;  // of each lane, but for which CTS
  uint64_t ringOffset_ = 0;
  bool gpuMemory_ = false;  // a fact about what is registered: the sender is told to send nothing eagerly

  TagTable<TagState> tags_;
  std::vector<Waiting> waiting_;
  uint32_t waitingFree_ = kNone;  // those of them that hold none, by their `next`
  // CTS to write, in posting order: a number that never comes again, and the slot below it. A slot that was
  // filled meanwhile leaves its entry behind.
  GrowingRing<uint64_t> unwritten_;
  uint64_t queuedCts_ = 0;        // in all
  uint32_t openCount_ = 0;        // slots posted and not filled
  uint32_t advertisedCount_ = 0;  // of them, those the sender may write
  bool ctsQueued_ = false;        // the engine knows that there are some
  uint64_t ctsDue_ = UINT64_MAX;
  uint32_t urgent_ = 0;           // unwritten CTS that need not be held back
  uint32_t waitingForBatch_ = 0;  // and those that wait for a batch
  bool batchDue_ = false;         // some tag's sender has not enough to do any more
  uint8_t eagerInARow_ = 0;       // messages since one came by its CTS, at most kEagerRun
  Budget::Share share_;           // of the engine's notifications
  WindowIn window_;               // of direct messages
  SumBook book_{sums_};           // of messages' bytes
  std::array<ReceiveSlot*, kPlacedAtOnce> placedQueue_{};  // whose CTS are not written
  uint32_t placedQueued_ = 0;                              // so many of them are used
  uint32_t placedOpen_ = 0;                                // of the open slots
  uint32_t standing_ = 0;           // notifications that were taken for them; 0: no memory was ever opened
  int placedTag_ = 0;               // of all placed messages
  ReceiveSlot* landing_ = nullptr;  // slots with a direct message on its way; in no tag's list
  uint32_t landingCount_ = 0;
  Standing landingStanding_;  // of the one that began to land first
  uint64_t arrived_ = 0;      // messages in all
  uint64_t sent_ = kNotTold;  // the sender's total: it sends no more than these
  bool readAsked_ = false;    // a question is under way: how far the sender has read the ring
  uint64_t lastArrived_ = 0;  // as watchLast saw it
  TimePoint lastAt_{};        // and since when; default: it has not looked
};

template <class Visit>
void RecvCommImpl::eachOpen(Visit visit) {
  tags_.each([&](uint32_t, TagState& tag) {
    for (ReceiveSlot* slot = tag.first; slot; slot = slot->next) visit(*slot);
  });
}

// What every arrival goes through, inline in the engine's poll pass. Only inside the engine:

constexpr uint32_t kEagerGap = 64;          // poll passes: tens of microseconds for who polls without a pause
constexpr uint64_t kForBatch = UINT64_MAX;  // instead of a pass: until the sender runs short

// A sender with so much to write does not miss a CTS that comes a little later, together with others. It
// covers a round trip of 4 us at 50 GB/s.
constexpr uint64_t kAheadBytes = 256 << 10;

// As many receives as wait here, and what a round trip takes to use up. A tag's messages come in the order of
// its receives, so the sender needs none of their CTS before it has written to those.
inline bool RecvCommImpl::senderHasEnough(const TagState& tag) const {
  return tag.toldBytes >= kAheadBytes && advertisedCount_ * 2 >= openCount_;
}

// A slot that is part of nothing yet. It keeps its generation.
inline void RecvCommImpl::prepare(ReceiveSlot* slot, const ReceiveSpec& spec, uint32_t k) {
  slot->arrived = slot->asked = slot->askedOdd = 0;
  slot->segments = 0;
  slot->state = SlotState::queued;
  slot->tag = static_cast<uint32_t>(spec.tag);
  slot->k = k;
  slot->placed = false;
  slot->reportedFailed = false;
  slot->received = 0;
  slot->capacity = spec.bytes;
  slot->data = spec.data;
  slot->comm = this;
  slot->memory = spec.bytes > 0 ? spec.memory : nullptr;
  slot->record = stats_.posted(slot->tag, slot->k, spec.bytes, stats::Way::none);
}

inline void RecvCommImpl::append(TagState& tag, ReceiveSlot* slot) {
  openCount_++;
  slot->next = nullptr;
  slot->previous = tag.last;
  (tag.last ? tag.last->next : tag.first) = slot;
  tag.last = slot;
}

// No message will fill it any more. One that was filled before its CTS was written is mostly the oldest of
// them.
inline void RecvCommImpl::unlink(ReceiveSlot* slot, TagState& tag) {
  (slot->previous ? slot->previous->next : tag.first) = slot->next;
  (slot->next ? slot->next->previous : tag.last) = slot->previous;
  openCount_--;
  placedOpen_ -= slot->placed ? 1 : 0;
  if (slot->state == SlotState::advertised) {
    advertisedCount_--;
    tag.toldBytes -= slot->capacity;
    if (!slot->placed) [[likely]]
      engine().budget().giveBack(&share_);
    if (waitingForBatch_ > 0 && !senderHasEnough(tag)) batchIsDue();
  } else {
    urgent_ -= slot->holdUntilPass == 0;
    waitingForBatch_ -= slot->holdUntilPass == kForBatch;
    if (!unwritten_.empty() && unwritten_.front() == slot->queuedAs) unwritten_.pop();
  }
  if (slot->memory) slot->memory->inUse--;
}

inline ReceiveSlot* RecvCommImpl::findOpen(const TagState& tag, uint32_t k) {
  ReceiveSlot* slot = tag.first;
  while (slot && slot->k != k) slot = slot->next;
  return slot;
}

inline void RecvCommImpl::completePart(Request* request, size_t part, uint64_t bytes) {
  request->sizes[part] = static_cast<int>(bytes);
  request->remaining--;
  endEvent(request, part, bytes);
}

// Its message is here, and it is in no list any more.
inline void RecvCommImpl::fulfil(ReceiveSlot* slot, uint64_t bytes, stats::Way way) {
  if (sums_.concerns(slot->k) && !isAsSent(*slot, bytes)) [[unlikely]]
    return letGoOf(slot);
  stats_.done(slot->record, bytes, way);
  if (slot->isRequest) [[likely]] {
    slot->received = bytes;
    slot->state = SlotState::filled;
    return;
  }
  completePart(slot->request, slot->part, bytes);
  engine().giveSlot(slot);
}

inline void RecvCommImpl::messageArrived() {
  arrived_++;
  if (hasAll()) [[unlikely]]
    allAreHere();
}

// For a message that comes without a CTS. A placed one cannot.
inline uint64_t roomFor(const ReceiveSlot& slot) {
  return slot.placed ? 0 : slot.capacity;
}

inline bool RecvCommImpl::fill(const ReceiveSlot& slot, const EagerHeader& header, const std::byte* payload) {
  if (header.size > roomFor(slot)) [[unlikely]] {
    tooLarge(header.tag, header.k, header.size, roomFor(slot));
    return false;
  }
  if (slot.memory && !slot.memory->host) [[unlikely]]
    return fillGpu(slot, header, payload);
  if (header.size > 0) [[likely]]
    copyLines(static_cast<std::byte*>(slot.data), payload, header.size);
  return true;
}

[[gnu::always_inline]] inline void RecvCommImpl::onEager(uint32_t eagerSlot, const EagerHeader& header,
                                                         const std::byte* payload) {
  ctsRing_.readUpTo(header.ctsRead);
  readAsked_ = false;
  TagState& tag = tags_.at(header.tag);
  ReceiveSlot* slot = findOpen(tag, header.k);
  if (!slot) return keepWaiting(eagerSlot, header.tag, header.k, header.size);
  tag.heldUntilPass = engine().pass() + kEagerGap;
  if (eagerInARow_ < kEagerRun) eagerInARow_++;
  if (!fill(*slot, header, payload)) [[unlikely]]
    return refuseWaiting(eagerSlot);
  if (slot->state == SlotState::advertised) ctsRing_.overtaken(slot->position, slot->ctsSequence, slot->lane);
  unlink(slot, tag);
  peering().freeEagerSlot(eagerSlot);
  fulfil(slot, header.size, stats::Way::eager);
  messageArrived();
}

}  // namespace weft::core
