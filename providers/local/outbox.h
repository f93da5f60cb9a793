// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <optional>

#include "providers/local/layout.h"

// The writing half of a lane: the frames that we have put into the peer's inbox, and do not know to be taken.
// The peer takes frames in the order in which they were put. The endpoint owns it. A single thread uses it.
namespace weft::local {

// A frame to be. Its bytes are with us.
struct Piece {
  FrameKind kind = FrameKind::write;
  bool more = false;
  bool tell = false;
  uint32_t imm = 0;
  uint32_t length = 0;
  uint32_t whole = 0;
  uint64_t key = 0;
  uint64_t offset = 0;
  const std::byte* from = nullptr;
  uint64_t share = 0;  // not 0: the bytes stay in that share, at `sharedAt`
  uint64_t sharedAt = 0;
};

// The memory of a frame that was put.
struct Sent {
  uint64_t context = 0;
  uint64_t ringEnd = 0;  // ringHead_ after this frame
  bool last = false;     // the last frame of its work
  bool silent = false;   // no completion is wanted for its work
};

class Outbox {
 public:
  void attach(Inbox* peer) { peer_ = peer; }
  bool attached() const { return peer_ != nullptr; }
  // Puts a frame. False: there is no room now. `consumed`: frames of the other direction that we have taken.
  bool put(const Piece& piece, const Sent& sent, uint32_t consumed);

  bool empty() const { return head_ == tail_; }
  bool hasConsumed() const { return consumed_ != tail_; }
  // The oldest frame that the peer is known to have taken, if any. Each frame comes once.
  std::optional<Sent> takeConsumed() {
    if (!hasConsumed()) return std::nullopt;
    return takeOldest();
  }
  // The oldest frame, taken or not: for a lane that ends.
  std::optional<Sent> takeAny() {
    if (empty()) return std::nullopt;
    return takeOldest();
  }
  // The peer says how many frames it has taken. An older, smaller number may come late. False: more than were
  // ever put.
  bool note(uint32_t consumed) {
    if (isAfter(consumed, head_)) return false;
    if (!isAfter(consumed, consumed_)) return true;
    consumed_ = consumed;
    ringTail_ = sent_[(consumed - 1) % kMostSent].ringEnd;
    return true;
  }
  // Reads the number in the peer's inbox.
  void look() { (void)note(peer_->owner.consumed.load(std::memory_order_acquire)); }

 private:
  // More than there are frames: taken frames may wait here until they are asked for.
  static constexpr uint32_t kMostSent = 4 * kSlots;

  static bool isAfter(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }
  bool hasFrame();
  bool placeInRing(size_t length, uint64_t* at);
  // A frame that is dropped may be one that the peer has not taken.
  Sent takeOldest() {
    if (consumed_ == tail_) consumed_++;
    return sent_[tail_++ % kMostSent];
  }

  Inbox* peer_ = nullptr;
  uint32_t head_ = 0;      // frames ever put
  uint32_t tail_ = 0;      // of them: frames that are over
  uint32_t consumed_ = 0;  // of them: frames that the peer has taken; between tail_ and head_
  uint64_t ringHead_ = 0;  // bytes of the ring ever used
  uint64_t ringTail_ = 0;  // bytes of the ring that are free again
  std::array<Sent, kMostSent> sent_;
};

}  // namespace weft::local
