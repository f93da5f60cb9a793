// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// LocalEndpoint's receiving half: takes frames out of our inbox and lands what they carry.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "providers/local/compat.h"
#include "providers/local/endpoint.h"

namespace weft::local {

namespace {

constexpr size_t kBytesPerPoll = 512 << 10;  // then the caller gets its turn

}  // namespace

struct LocalEndpoint::Taken {
  explicit Taken(const Frame& frame)
      : kind(frame.kind),
        place(frame.place),
        flags(frame.flags),
        consumed(frame.consumed),
        imm(frame.imm),
        length(frame.length),
        whole(frame.whole),
        key(frame.key),
        offset(frame.offset),
        source(frame.source),
        inlined(frame.inlined.data()) {}
  // Whether its bytes lie where such a frame's may.
  bool wellFormed() const {
    if (kind == FrameKind::read) return length > 0 && length <= kReplyBytes;
    if (kind != FrameKind::write && kind != FrameKind::notify) return false;
    if (length > whole || whole > kMaxWriteBytes) return false;
    switch (place) {
      case Place::none:
        return length == 0;
      case Place::inlined:
        return length <= kInlineBytes;
      case Place::ring:
        return source <= kRingBytes && length <= kRingBytes - source;
    }
    return false;
  }

  const FrameKind kind;
  const Place place;
  const uint16_t flags;
  const uint32_t consumed, imm, length, whole;
  const uint64_t key, offset, source;
  const std::byte* const inlined;
};

// Between the two stores of `landing` the peer does not take a fence for passed. Sequentially consistent:
// either we see the fence, or the peer sees that we land.
size_t LocalEndpoint::landAll(std::span<Completion> out) {
  mine_->turn.landing.store(1, std::memory_order_seq_cst);
  size_t count = 0;
  const uint64_t most = landedBytes_ + kBytesPerPoll;
  if (mine_->peer.fence.load(std::memory_order_seq_cst) == 0) {
    Completion told;
    while (count < out.size() && landedBytes_ < most && hasFrame()) {
      told.source = nullptr;
      if (!landNext(&told)) break;
      if (told.source) out[count++] = told;
    }
  }
  mine_->turn.landing.store(0, std::memory_order_release);
  idlePolls_ = 0;
  if (untold_ >= kMostUntold) tell();
  return count;
}

// False: the lane is over.
bool LocalEndpoint::landNext(Completion* told) {
  const Taken frame(mine_->frames[taken_ % kSlots]);
  if (!frame.wellFormed() || !outbox_.note(frame.consumed))
    return refuse(EPROTO, "the peer sent a frame that is not in order");
  if (frame.kind == FrameKind::read ? !answerRead(frame) : !landBytes(frame)) return false;
  landedBytes_ += frame.length;
  taken_++;
  noteTaken(frame);
  if (frame.kind != FrameKind::notify || (frame.flags & kMore) != 0) return true;
  *told = about(CompletionKind::notified);
  told->imm = frame.imm;
  told->length = frame.whole;
  return true;
}

// Who waits for a large frame has more to put where it was, and should do so while we go on.
void LocalEndpoint::noteTaken(const Taken& frame) {
  constexpr uint32_t kWorthTelling = 4096;
  untold_ += 1 + (frame.place == Place::ring ? frame.length / 1024 : 0);
  if ((frame.flags & kTell) == 0) return;
  if (frame.length >= kWorthTelling)
    tell();
  else
    untold_ = std::max(untold_, kMostUntold);
}

// The memory is held for one copy, so that who gives it back waits for no more.
bool LocalEndpoint::landBytes(const Taken& frame) {
  if (frame.length == 0) return true;
  const mem::KeyTable::Use pin = queue_.table().use(frame.key);
  if (!pin.valid()) return refuse(EACCES, "the peer wrote to memory that is not registered here (any more)");
  std::byte* to = pin.at(frame.offset, frame.length);
  if (!to) return refuse(ERANGE, "the peer wrote outside the memory that it named");
  const std::byte* from = frame.place == Place::inlined ? frame.inlined : mine_->ring.data() + frame.source;
  if (frame.whole >= kLarge)
    copyPastCaches(to, from, frame.length);
  else
    std::memcpy(to, from, frame.length);
  return true;
}

bool LocalEndpoint::answerRead(const Taken& frame) {
  const mem::KeyTable::Use pin = queue_.table().use(frame.key);
  if (!pin.valid()) return refuse(EACCES, "the peer read memory that is not registered here (any more)");
  const std::byte* from = pin.at(frame.offset, frame.length);
  if (!from) return refuse(ERANGE, "the peer read outside the memory that it named");
  std::memcpy(theirs_->reply.bytes.data(), from, frame.length);
  theirs_->reply.length.store(frame.length, std::memory_order_release);  // its bytes before it
  return true;
}

// What cannot be landed ends the lane, on both sides.
bool LocalEndpoint::refuse(int error, const std::string& why) {
  tell();
  mine_->owner.error.store(error, std::memory_order_release);
  die(error == ERANGE ? EACCES : error, why);
  return false;
}

void LocalEndpoint::tell() {
  mine_->owner.consumed.store(taken_, std::memory_order_release);  // what they carried is there
  untold_ = 0;
}

}  // namespace weft::local
