// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// LocalEndpoint's receiving half: takes frames out of our inbox and lands their bytes.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "providers/local/compat.h"
#include "providers/local/endpoint.h"
#include "providers/local/taken.h"

namespace weft::local {

namespace {

constexpr size_t kBytesPerPoll = 512 << 10;  // then the caller gets its turn
// To begin a copy of a GPU's takes the processor about as long as to copy so many bytes, however long it is.
constexpr size_t kBytesOfCopy = 32 << 10;

}  // namespace

// The peer does not take a fence for passed between the two stores of `landing`. They are sequentially
// consistent with the fence: either we see the fence, or the peer sees that we land.
size_t LocalEndpoint::landAll(std::span<Completion> out) {
  mine_->turn.landing.store(1, std::memory_order_seq_cst);
  size_t count = flying_ == 0 ? 0 : landFlown(out);
  const uint64_t most = landedBytes_ + kBytesPerPoll;
  if (mine_->peer.fence.load(std::memory_order_seq_cst) == 0 && life_.ready()) {
    Completion told;
    while (count < out.size() && landedBytes_ < most && hasFrame()) {
      told.source = nullptr;
      if (!landNext(&told)) break;
      if (told.source) out[count++] = told;
    }
  }
  if (flying_ == 0) mine_->turn.landing.store(0, std::memory_order_release);
  idlePolls_ = 0;
  if (untold_ >= kMostUntold) tell();
  return count;
}

// Lands one frame. False: the lane is over.
bool LocalEndpoint::landNext(Completion* told) {
  const Taken frame(mine_->frames[taken_ % kSlots]);
  if (!frame.wellFormed() || !outbox_.note(frame.consumed))
    return refuse(EPROTO, "the peer sent a frame that is not in order");
  if (frame.kind == FrameKind::read ? !answerRead(frame) : !landBytes(frame)) return false;
  landedBytes_ += begun_ ? kBytesOfCopy : frame.length;
  taken_++;
  if (!begun_ && flying_ == 0) [[likely]] {
    landed(frame, told);
    return true;
  }
  landings_.push_back({std::move(begun_), frame.kind, frame.place, frame.flags, frame.imm, frame.length,
                       frame.whole, frame.key});
  flying_++;
  return true;
}

// All bytes of the frame, and of the frames before it, are in place.
template <class Of>
void LocalEndpoint::landed(const Of& frame, Completion* told) {
  if (frame.kind >= FrameKind::forget) [[unlikely]]
    heardOfShare(frame.kind, frame.key, frame.imm);
  noteTaken(frame);
  if (frame.kind != FrameKind::notify || (frame.flags & kMore) != 0) return;
  *told = about(CompletionKind::notified);
  told->imm = frame.imm;
  told->length = frame.whole;
}

// A peer that waits for a large frame has more to put in its place, and should do so while we go on.
template <class Of>
void LocalEndpoint::noteTaken(const Of& frame) {
  constexpr uint32_t kWorthTelling = 4096;
  untold_ += 1 + (frame.place == Place::ring ? frame.length / 1024 : 0);
  if ((frame.flags & kTell) == 0) return;
  if (frame.length >= kWorthTelling)
    tell();
  else
    untold_ = std::max(untold_, kMostUntold);
}

// Tells the frames whose turn has come, up to the first copy that is still under way.
size_t LocalEndpoint::landFlown(std::span<Completion> out) {
  size_t count = 0;
  while (count < out.size() && flying_ > 0) {
    Landing& next = landings_.front();
    if (next.flight) {
      const auto state = next.flight->state();
      if (state == GpuFlights::Flight::State::underWay) break;
      if (state == GpuFlights::Flight::State::failed) {
        (void)refuse(EIO, next.flight->why());
        break;
      }
      queue_.device().flights()->over(next.flight);
    }
    const Landing over = std::move(next);
    landings_.pop_front();
    flying_--;  // before it is told, as it counts as consumed
    Completion told;
    told.source = nullptr;
    landed(over, &told);
    if (told.source) out[count++] = told;
  }
  return count;
}

// For a lane that is over. True: nothing that it began is under way any more, and the peer is told so.
bool LocalEndpoint::allLanded() {
  for (; flying_ > 0; flying_--) {
    const auto& flight = landings_.front().flight;
    if (flight && flight->state() == GpuFlights::Flight::State::underWay) return false;
    if (flight) queue_.device().flights()->over(flight);
    landings_.pop_front();
  }
  if (mine_) mine_->turn.landing.store(0, std::memory_order_release);
  return true;
}

// The pin lasts for one copy, so deregistering waits for no more than that.
bool LocalEndpoint::landBytes(const Taken& frame) {
  if (frame.length == 0) return true;
  const KeyTable::Use pin = queue_.table().use(frame.key, PeerAccess::write);
  if (!pin.valid()) return refuse(EACCES, "the peer wrote to memory that is not registered here (any more)");
  std::byte* to = pin.at(frame.offset, frame.length);
  if (!to) return refuse(ERANGE, "the peer wrote outside the memory that it named");
  if (frame.place == Place::shared || pin.gpu() >= 0) [[unlikely]]
    return landGpu(frame, to, pin.gpu());
  const std::byte* from = frame.bytes(*mine_);
  if (frame.whole >= kLarge)
    copyPastCaches(to, from, frame.length);
  else
    std::memcpy(to, from, frame.length);
  return true;
}

// The answer is written into the peer's inbox, which has a place for one.
bool LocalEndpoint::answerRead(const Taken& frame) {
  const KeyTable::Use pin = queue_.table().use(frame.key, PeerAccess::readAndWrite);
  if (!pin.valid()) return refuse(EACCES, "the peer read memory that is not registered here (any more)");
  const std::byte* from = pin.at(frame.offset, frame.length);
  if (!from) return refuse(ERANGE, "the peer read outside the memory that it named");
  if (pin.gpu() < 0)
    std::memcpy(theirs_->reply.bytes.data(), from, frame.length);
  else if (const Status copied =
               shares_->driver().fromGpu(pin.gpu(), theirs_->reply.bytes.data(), from, frame.length);
           !copied)
    return refuse(EIO, copied.error().message());
  theirs_->reply.length.store(frame.length, std::memory_order_release);  // release: after its bytes
  return true;
}

// A frame that cannot be landed ends the lane on both sides.
bool LocalEndpoint::refuse(int error, const std::string& why) {
  tell();
  mine_->owner.error.store(error, std::memory_order_release);
  broke(error == ERANGE ? EACCES : error, why);
  return false;
}

void LocalEndpoint::tell() {
  // Release: after the bytes of those frames.
  mine_->owner.consumed.store(consumed(), std::memory_order_release);
  untold_ = 0;
}

}  // namespace weft::local
