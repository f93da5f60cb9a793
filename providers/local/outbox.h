// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <optional>

#include "providers/local/layout.h"

// The writing half of a lane: what we put into the peer's inbox, and have not heard of yet. Frames are taken
// in the order in which they were put. One thread.
namespace weft::local {

// A frame to be, whose bytes are with us.
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
  uint64_t share = 0;  // not 0: the bytes stay where they are, `sharedAt` in that memory
  uint64_t sharedAt = 0;
};

// The memory of a frame that was put.
struct Sent {
  uint64_t context = 0;
  uint64_t ringEnd = 0;  // bytes of the ring that were ever used up to its end
  bool last = false;     // of its work
  bool silent = false;   // no completion is wanted
};

class Outbox {
 public:
  void attach(Inbox* peer) { peer_ = peer; }
  // False: there is no room now. `consumed`: of the frames that came to us.
  bool put(const Piece& piece, const Sent& sent, uint32_t consumed);

  bool empty() const { return head_ == tail_; }
  bool hasConsumed() const { return consumed_ != tail_; }
  // The oldest frame that the peer is known to have taken, if any; each once.
  std::optional<Sent> takeConsumed() {
    if (!hasConsumed()) return std::nullopt;
    return takeOldest();
  }
  std::optional<Sent> takeAny() {
    if (empty()) return std::nullopt;
    return takeOldest();
  }
  // The peer says that it has taken so many, maybe after it said that there were more. False: so many there
  // never were.
  bool note(uint32_t consumed) {
    if (isAfter(consumed, head_)) return false;
    if (!isAfter(consumed, consumed_)) return true;
    consumed_ = consumed;
    ringTail_ = sent_[(consumed - 1) % kMostSent].ringEnd;
    return true;
  }
  // As its inbox says now.
  void look() { (void)note(peer_->owner.consumed.load(std::memory_order_acquire)); }

 private:
  // More than there are frames: taken ones may wait here until they are asked for.
  static constexpr uint32_t kMostSent = 4 * kSlots;

  static bool isAfter(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }
  bool hasFrame();
  bool placeInRing(size_t length, uint64_t* at);
  // Dropped ones may be such as the peer has not taken.
  Sent takeOldest() {
    if (consumed_ == tail_) consumed_++;
    return sent_[tail_++ % kMostSent];
  }

  Inbox* peer_ = nullptr;
  uint32_t head_ = 0;      // frames ever put
  uint32_t tail_ = 0;      // of them, those that are over
  uint32_t consumed_ = 0;  // of them, those that the peer has taken; between the two
  uint64_t ringHead_ = 0;  // bytes of the ring ever used
  uint64_t ringTail_ = 0;
  std::array<Sent, kMostSent> sent_;
};

}  // namespace weft::local
