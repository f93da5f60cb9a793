// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <unordered_map>

#include "src/core/comm.h"
#include "src/core/tag_table.h"

// The sending end of a connection: reads the receiver's CTS, matches them by (tag, k), writes
// straight to where they point; small messages leave earlier, through the eager pool.
namespace weft::core {

class SendCommImpl final : public CommBase, public SendComm {
 public:
  // `window`: bytes of direct messages that the receiver lets wait at its end.
  static Result<std::unique_ptr<SendCommImpl>> create(CommOptions options, uint32_t remoteNumber,
                                                      uint32_t window);
  explicit SendCommImpl(CommOptions options) : CommBase(std::move(options), "sender") { send_ = this; }
  ~SendCommImpl() override;

  // SendComm:
  void close() override { CommBase::close(); }
  void keep(std::shared_ptr<const void> memory) override { keepMemory(std::move(memory)); }
  int device() const override { return options_.device; }
  stats::OneSided* oneSided() override { return oneSidedCounters(); }
  Result<MemoryHandle*> registerMemory(const MemoryDesc& desc) override {
    return addHandle(desc, PeerAccess::none);
  }
  Status deregisterMemory(MemoryHandle* handle) override { return removeHandle(handle); }
  Tested test(Request* request, int* sizes) override { return testRequest(request, sizes); }
  Error error() const override { return stickyError(); }
  bool hasFailed() const override { return failed(); }
  bool isLeft() override { return isLeftByPeer(); }
  void fail(const std::string& why) override { endForOwner(why); }
  void mayStand() override { mayStand_.store(true, std::memory_order_relaxed); }
  void mayChange() override { sumNothing(); }
  Posted isend(const void* data, size_t bytes, int tag, MemoryHandle* memory, void* profilerHandle) override;
  Posted isendFollowed(const void* data, size_t bytes, int tag, MemoryHandle* memory) override;
  void leaveNow() override;
  // Placed messages, in send_comm_placed.cc:
  bool isOpen(uint32_t number) override;
  Posted isendPlaced(const void* data, size_t bytes, int tag, MemoryHandle* memory, uint32_t number,
                     uint64_t offset) override;

  // CommBase:
  bool busy() const override { return unfinished_ > 0; }
  void finishRequest(Request* request, int* sizes) {  // it is done, and NCCL hears of it
    if (sizes) sizes[0] = request->sizes[0];
    endEvent(request, 0, request->bytes);
    inFlight_--;
  }
  void onSent(Request* request) {  // all its segments are out
    unfinished_--;
    stats_.done(request->record, request->bytes, stats::Way::none);
    if (request->memory) request->memory->inUse--;
    request->memory = nullptr;
  }
  // Of these segments, whose lane is fenced, the peer misses some; the others are done.
  [[gnu::cold]] void resolve(Request* request, uint16_t segments, uint16_t missing);
  void tellSums() override;
  void watch(TimePoint now) override;
  CommReport describe() override;
  void noteWaits(WaitLook* look) override;
  bool needsPeer() const override { return !closedByPeer() || failed(); }
  void onPeerGone() override;
  void onMessage(MessageType type, ByteReader* body) override;
  Place windowReturned(const WindowReturn& window);  // the receiver matched some; from within the poll

  const mem::Block& ring() const { return ring_; }

 private:
  struct TagState {
    uint32_t k = 0;           // of the next send
    uint16_t first = kNoCts;  // CTS read and not used, oldest first
    uint16_t last = kNoCts;
    bool tried = false;     // and refused, since somebody looked last
    uint32_t refusedK = 0;  // the next send's, plus 1, once that could not start
    uint32_t refusedBytes = 0;
    Standing standing;
    Standing asked;  // a receive of the peer's that nobody fills

    bool refused(uint32_t next) const { return refusedK == next + 1; }
    Posted notNow(size_t bytes) {
      tried = true;
      refusedK = k + 1;
      refusedBytes = static_cast<uint32_t>(bytes);
      return {true, nullptr};
    }
  };
  static constexpr uint16_t kNoCts = UINT16_MAX;
  static constexpr uint32_t kMostInFlight = kMaxRequests * kMaxRecvs;
  Posted notNow(TagState& state, uint32_t tag, size_t bytes) {
    stats_.refused(tag, state.k, bytes);
    return state.notNow(bytes);
  }

  struct Send {
    const void* data;
    size_t bytes;
    uint32_t tag;
    MemoryHandle* memory;
    void* profilerHandle;
  };

  // Of the receiver's memory.
  struct Opened {
    uint32_t memory = 0;  // announced id
    uint64_t offset = 0;  // from its first byte
    uint64_t length = 0;
  };

  const char* fault(const Send& send) const;
  [[gnu::cold]] Posted refuse(const char* why);
  [[gnu::cold]] Posted failSending(Code code, const char* why);
  bool mayStart() const { return life_.is(Stage::open) && !peering().suspected(); }
  [[gnu::cold]] Posted cannotStart(bool entered);
  HeldCts ctsFor(const TagState& tag) const;
  void readCtsChain() {
    if (ctsIsNew()) readNewCts();
  }
  [[gnu::noinline]] void readNewCts();
  bool ctsIsNew() const { return ctsBegins(ctsAt(position_), number_, sequence_); }
  void forgetCts(uint16_t position);
  void usedFirstCts(TagState* tag);
  [[gnu::cold]] void failAgainst(uint32_t tag, size_t bytes, HeldCts cts);
  bool mayLeaveEagerly(const Send& send) const;
  bool mayLeaveDirectly(size_t bytes, const MemoryHandle* memory) const {
    return !followed_ && window_.holds(bytes) && (bytes == 0 || memory->host) &&
           !toGpu_.load(std::memory_order_relaxed);
  }
  [[gnu::noinline]] Request* sendDirect(const Send& send, TagState& tag);
  void postDirect(Request* request);
  [[gnu::noinline]] void dropCts(TagState& tag);
  [[gnu::always_inline]] Request* sendByCts(const Send& send, TagState& tag, HeldCts cts);
  [[gnu::always_inline]] Request* write(const Send& send, TagState& tag, const Transfer& transfer,
                                        const Peering::Imported& target);
  Request* sendPlaced(const Send& send, TagState& tag, HeldCts cts, uint32_t number, uint64_t offset);
  void takeOpened(const OpenMemoryMessage& message);
  void forgetOpened(const ShutMemoryMessage& message);
  [[gnu::always_inline]] void postWhole(Request* request, Lane& lane, const Peering::Imported& target);
  [[gnu::noinline]] void postSegments(Request* request, const Peering::Imported& target);
  [[gnu::always_inline]] void postSegment(Request* request, size_t i, uint64_t offset, Lane& lane,
                                          const Peering::Imported& target);
  [[gnu::cold]] void letGo(Request* request);
  void writeAgain(Request* request, size_t i, uint64_t offset);
  void takeCts(const CtsMessage& message);
  [[gnu::always_inline]] Request* sendEager(const Send& send, TagState& tag);
  [[gnu::noinline]] Request* sendTogether(const Send& send, TagState& tag);
  [[gnu::noinline]] Request* sendFollowed(const Send& send, TagState& tag);
  [[gnu::cold]] Request* sendProfiled(const Send& send, TagState& tag);
  [[gnu::always_inline]] size_t stageEager(int slot, const Send& send, TagState& tag);
  [[gnu::cold, gnu::noinline]] void sum(const Send& send, uint32_t k, uint8_t lane);
  [[gnu::cold, gnu::noinline]] void sum(const Request& request);
  void addSum(const PayloadSum& sum);
  Request* begin(const Send& send, uint32_t k);
  void awaitSent(Request* request, const Send& send);
  void answerProbe(const ProbeMessage& probe);
  bool inFlight(uint32_t tag, uint32_t k);
  void tellTotal();
  void stopUsing(MemoryHandle* handle) override;
  std::optional<Event> closingEvent() override;
  void askOther() override { tellTotal(); }
  void letGo() override;
  uint64_t total() const override { return messages_; }
  void leaveRing() override;
  const std::byte* ctsAt(uint16_t position) const { return ring_.data() + size_t{position} * sizeof(Cts); }

  mem::Block ring_;  // the receiver writes here
  WindowOut window_;
  SumsToTell sumsToTell_;
  TagTable<TagState> tags_;
  std::array<uint16_t, kRingPositions> nextInTag_{};
  uint16_t position_ = 0;                        // where the next CTS will appear
  uint32_t sequence_ = 0;                        // and which one it is
  uint64_t messages_ = 0;                        // sent in all
  std::unordered_map<uint32_t, Opened> opened_;  // by the receiver's numbers
  bool followed_ = false;           // of the call under way: another one comes at once; the caller's
  uint32_t inFlight_ = 0;           // requests not handed back
  uint32_t unfinished_ = 0;         // of them, those a fabric still works on
  std::atomic<bool> toGpu_{false};  // a fact about the receiver's memory; set inside, read before entering
};

// What every way out begins with: its request, and a look for its CTS. Inline in those who send, as each
// message goes through it. Only inside the engine:

inline Request* SendCommImpl::begin(const Send& send, uint32_t k) {
  if (inFlight_ >= kMostInFlight) [[unlikely]]
    return nullptr;
  Request* request = engine().takeRequest(RequestKind::send, this);
  if (!request) [[unlikely]]
    return nullptr;
  request->bytes = send.bytes;
  request->sizes[0] = static_cast<int>(send.bytes);
  request->tags[0] = static_cast<int>(send.tag);
  request->sequence[0] = k;
  beginEvent(request, 0, send.profilerHandle, send.bytes);
  inFlight_++;
  messages_++;
  return request;
}

// Of the arguments alone: nothing that another thread may change meanwhile.
inline const char* SendCommImpl::fault(const Send& send) const {
  if (send.bytes > kMaxMessageBytes) return "a message above 1 GiB; split it";
  return memoryFault(send.memory, this, send.data, send.bytes);
}

// A fabric works on it, and on its memory, until onSent.
inline void SendCommImpl::awaitSent(Request* request, const Send& send) {
  unfinished_++;
  if (!send.memory || send.bytes == 0) return;
  request->memory = send.memory;
  send.memory->inUse++;
}

// The CTS that waits for this message, or none. In the order of k; one that is missing at the front belongs
// to a message that will leave eagerly, or is still on its way.
inline HeldCts SendCommImpl::ctsFor(const TagState& tag) const {
  if (tag.first == kNoCts) return HeldCts(nullptr);
  const HeldCts cts(ctsAt(tag.first));
  return cts.k() == tag.k ? cts : HeldCts(nullptr);
}

}  // namespace weft::core
