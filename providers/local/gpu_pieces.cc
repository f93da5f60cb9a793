// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// LocalEndpoint's way with GPU memory. Memory that can be shared is named in a frame, and the receiver copies
// it, from GPU to GPU; all else goes through the ring as host memory does, copied by the driver at both ends.
// A copy is over when the call returns, so that fences and pins hold for it as they do for the processor's.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "providers/local/endpoint.h"
#include "providers/local/taken.h"

namespace weft::local {

// False: not now, or the lane is over.
bool LocalEndpoint::pieceOfGpu(const KeyedMemory& memory, Piece* piece) {
  if (!shares_) {
    broke(EINVAL, "a work on GPU memory where the lane takes none");
    return false;
  }
  const auto name = shares_->nameOf(memory, piece->from);
  if (!name) return false;
  if (name->share != 0) {
    const size_t left = piece->whole - writing_.done;
    piece->share = name->share;
    piece->sharedAt = name->offset;
    piece->length = static_cast<uint32_t>(std::min({left, name->left, kMostShared}));
    return true;
  }
  if (stagedFrom_ != piece->from) {
    staged_.resize(kMostInFrame);
    const Status copied = shares_->driver().fromGpu(memory.gpu(), staged_.data(), piece->from, piece->length);
    if (!copied) broke(EIO, copied.error().message());
    if (!copied) return false;
    stagedFrom_ = piece->from;
  }
  piece->from = staged_.data();
  return true;
}

bool LocalEndpoint::landGpu(const Taken& frame, std::byte* to, int gpu) {
  if (!shares_) return refuse(EPROTO, "the peer sent GPU memory where the lane takes none");
  Status copied;
  if (frame.place == Place::shared) {
    uint64_t share = 0;
    std::memcpy(&share, frame.inlined, sizeof share);
    const int by = gpu >= 0 ? gpu : shares_->gpu();
    const auto from = shares_->find(share, frame.source, frame.length, by);
    if (!from) return refuse(EIO, from.error().message());
    copied = gpu >= 0 ? shares_->driver().within(by, to, *from, frame.length)
                      : shares_->driver().fromGpu(by, to, *from, frame.length);
  } else {
    copied = shares_->driver().toGpu(gpu, to, frame.bytes(*mine_), frame.length);
  }
  return copied || refuse(EIO, copied.error().message());
}

// A mapping over there keeps the memory, also where it was freed here.
void LocalEndpoint::forgetGone() {
  while (life_.ready() && shares_ && !writing_.open) {
    const auto share = shares_->gone(queue_.table());
    if (!share) return;
    Piece piece;
    piece.kind = FrameKind::forget;
    piece.key = *share;
    if (*share != 0 && !outbox_.put(piece, {0, 0, false, true}, taken_)) return;
    shares_->forgetOurs(*share);
  }
}

}  // namespace weft::local
