// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "providers/common/lane_life.h"
#include "providers/local/gpu_flights.h"
#include "providers/local/gpu_shares.h"
#include "providers/local/gpu_staging.h"
#include "providers/local/outbox.h"
#include "providers/local/queue.h"
#include "providers/local/shared.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// A lane to a process of this host. It has two inboxes: ours, into which the peer writes, and the peer's. The
// receiver lands the bytes in memory of its own process. So the owner of the memory checks every access, and
// nothing lands while the owner does not poll. The states: lane_life.h. Used by the Queue's thread.
namespace weft::local {

class LocalEndpoint : public Endpoint, private LaneLife::Host {
 public:
  static Result<std::unique_ptr<LocalEndpoint>> open(LocalQueue& queue);
  explicit LocalEndpoint(LocalQueue& queue);
  ~LocalEndpoint() override;

  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peerAddress) override;
  Result<RemoteMemory> import(std::span<const std::byte> blob) override;
  size_t post(std::span<const Work> works) override;
  void retire() override;

  // From the Queue.
  size_t poll(std::span<Completion> out) {
    if (!life_.ready()) return 0;
    const size_t count = complete(out);
    if (writing_.open || reading_.open) [[unlikely]]
      advance();
    return count + (life_.ready() ? land(out.subspan(count)) : 0);
  }
  // Moves connecting, fencing and closing on. False: nothing remains to be done.
  bool progress(TimePoint now);
  void checkPeer();     // breaks the lane where the peer is gone
  bool talkOfShares();  // tells the peer what there is to say about GPU memory

 private:
  // A work that is under way. `done` of its bytes are with the peer, or have come where it is a read.
  struct Active {
    Work work;
    size_t done = 0;
    bool open = false;
    bool asked = false;  // of a read: its next piece was asked for
  };
  // A copy of a frame, which the peer cannot change any more.
  struct Taken;
  // A frame that was taken while copies of the GPU's were under way, with the facts that are told when its
  // turn comes.
  struct Landing {
    std::shared_ptr<const GpuFlights::Flight> flight;  // null: the bytes are in place
    FrameKind kind;
    Place place;
    uint16_t flags;
    uint32_t imm, length, whole;
    uint64_t key;
  };

  // endpoint.cc:
  int check(const Work& work) const;
  void reject(const Work& work, int error);
  bool start(const Work& work);
  bool startRead(const Work& work);
  void advance();
  bool pushPieces();
  Piece nextPiece() const;
  bool askNext();
  void takeReply();
  size_t complete(std::span<Completion> out) {
    if (outbox_.empty()) return 0;
    return completeConsumed(out);
  }
  size_t completeConsumed(std::span<Completion> out);
  void peerRefused();
  Completion about(CompletionKind kind, int error = 0) { return completionOf(this, kind, error); }
  void failWork(uint64_t context, int error, const std::string& why);
  size_t failWorks(int error, const std::string& why);

  // landing.cc
  // Fetches both cache lines of the frame at once: the second one comes from the other processor as well.
  bool hasFrame() const {
    const Frame& next = mine_->frames[taken_ % kSlots];
    __builtin_prefetch(next.inlined.data() + kInlineBytes - 1);
    return next.number.load(std::memory_order_acquire) == taken_ + 1;
  }
  size_t land(std::span<Completion> out) {
    if (hasFrame() || flying_ > 0) return landAll(out);
    if (untold_ > 0 && ++idlePolls_ >= kIdlePollsUntilTold) [[unlikely]]
      tell();
    return 0;
  }
  size_t landAll(std::span<Completion> out);
  bool landNext(Completion* told);
  template <class Of>
  void landed(const Of& frame, Completion* told);
  template <class Of>
  void noteTaken(const Of& frame);
  bool landBytes(const Taken& frame);
  size_t landFlown(std::span<Completion> out);
  bool allLanded();
  uint32_t consumed() const { return taken_ - flying_; }
  bool answerRead(const Taken& frame);
  bool refuse(int error, const std::string& why);
  void tell();

  // gpu_pieces.cc
  bool pieceOfGpu(const KeyedMemory& memory, Piece* piece);
  bool landGpu(const Taken& frame, std::byte* to, int gpu);
  void heardOfShare(FrameKind kind, uint64_t share, uint32_t imm);

  // Connecting, in endpoint.cc.
  Status findPeer();
  // Sequentially consistent, ordered before the next look at the peer's word: of two ends that speak at once,
  // at least one sees the other's word.
  void say(Word word) { mine_->owner.word.store(word, std::memory_order_seq_cst); }
  void sayOver() { say(outbox_.attached() ? Word::ended : Word::left); }
  void hearPeer(TimePoint now);
  void heardWilling(TimePoint now);
  bool proveGpu();
  void broke(int error, const std::string& why) { life_.apply(LaneEvent::broke, error, why); }

  // LaneLife::Host, in endpoint.cc.
  size_t dropOutstanding(LaneState from, int error, const std::string& why) override;
  void startFence(LaneState from) override;
  std::optional<int> fenced(TimePoint now, bool late) override;
  void endFence(bool passed) override;
  void report(const Completion& completion, const std::string& why) override {
    queue_.report(completion, why);
  }
  std::string named(const char* what, const std::string& why) const override;
  Endpoint& endpoint() override { return *this; }

  // Polls without a frame until the peer is told how far we are.
  static constexpr uint32_t kIdlePollsUntilTold = 4;
  // Frames that the peer may not know to be taken, at most.
  static constexpr uint32_t kMostUntold = kSlots / 4;

  LocalQueue& queue_;
  SharedInbox mine_;    // ours, into which the peer writes
  SharedInbox theirs_;  // the peer's; empty until connect()
  Whereabouts here_, there_;
  Bytes address_;  // here_, encoded
  LaneLife life_;

  Outbox outbox_;
  Active writing_;                       // a write that is not wholly with the peer
  Active reading_;                       // a read; only one is under way
  std::shared_ptr<GpuShares> shares_;    // null: host memory only
  bool proven_ = false;                  // we have copied out of the peer's GPU memory
  std::unique_ptr<GpuStaging> staging_;  // for memory that cannot be shared; null: none yet
  // The last `flying_` frames taken, in order; the first one's copy is under way.
  std::deque<Landing> landings_;
  std::shared_ptr<const GpuFlights::Flight> begun_;  // the copy that the present frame has begun

  uint32_t taken_ = 0;   // frames taken from our inbox
  uint32_t flying_ = 0;  // of them: frames whose copy, or the copy of a frame before them, is under way
  // Of them: weight of those the peer may not know of; each KiB of the ring counts as one.
  uint32_t untold_ = 0;
  uint32_t idlePolls_ = 0;    // since a frame was taken
  uint64_t landedBytes_ = 0;  // ever
};

}  // namespace weft::local
