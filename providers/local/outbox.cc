// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/outbox.h"

#include <cstring>

#include "providers/local/compat.h"

// Writing a frame into the peer's inbox.
namespace weft::local {

// The peer's counter is read only where the known value does not suffice: reading it fetches a line that the
// peer writes.
bool Outbox::hasFrame() {
  if (head_ - consumed_ == kSlots) look();
  return head_ - consumed_ < kSlots && head_ - tail_ < kMostSent;
}

// A piece lies in the ring unbroken: too short a rest at the end of the ring is skipped.
bool Outbox::placeInRing(size_t length, uint64_t* at) {
  const size_t left = kRingBytes - ringHead_ % kRingBytes;
  *at = length <= left ? ringHead_ : ringHead_ + left;
  const auto fits = [&] { return *at + length - ringTail_ <= kRingBytes; };
  if (!fits()) look();
  return fits();
}

bool Outbox::put(const Piece& piece, const Sent& sent, uint32_t consumed) {
  if (!hasFrame()) return false;
  Frame& frame = peer_->frames[head_ % kSlots];
  uint64_t at = ringHead_;
  if (piece.length == 0 || piece.kind == FrameKind::read) {
    frame.place = Place::none;
  } else if (piece.share != 0) {
    frame.place = Place::shared;
    frame.source = piece.sharedAt;
    std::memcpy(frame.inlined.data(), &piece.share, sizeof piece.share);
  } else if (piece.length <= kInlineBytes) {
    frame.place = Place::inlined;
    std::memcpy(frame.inlined.data(), piece.from, piece.length);
  } else {
    if (!placeInRing(piece.length, &at)) return false;
    frame.place = Place::ring;
    frame.source = at % kRingBytes;
    std::byte* to = peer_->ring.data() + frame.source;
    if (piece.whole >= kLarge)
      copyPastCaches(to, piece.from, piece.length);
    else
      std::memcpy(to, piece.from, piece.length);
    at += (piece.length + kLine - 1) / kLine * kLine;
  }
  frame.kind = piece.kind;
  frame.flags = static_cast<uint16_t>((piece.more ? kMore : 0) | (piece.tell ? kTell : 0));
  frame.consumed = consumed;
  frame.imm = piece.imm;
  frame.length = piece.length;
  frame.whole = piece.whole;
  frame.key = piece.key;
  frame.offset = piece.offset;
  Sent& kept = sent_[head_ % kMostSent];
  kept = sent;
  kept.ringEnd = ringHead_ = at;
  head_++;
  frame.number.store(head_, std::memory_order_release);  // release: after all of the above and the bytes
  return true;
}

}  // namespace weft::local
