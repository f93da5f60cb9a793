// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// LocalEndpoint's way with GPU memory. A frame names memory that can be shared, and the receiver's GPU copies
// it. Other GPU memory goes through the ring, as host memory does, and the GPUs copy at both ends. No call
// waits for a copy: frames behind a copy that is under way are taken, and are told in their order when it is
// over.
#include <algorithm>
#include <cerrno>

#include "providers/local/endpoint.h"
#include "providers/local/taken.h"

namespace weft::local {

// Sets the piece's source and length. False: not now, or the lane is over. A work whose bytes began to go
// through pinned memory ends so, also where the peer has mapped them meanwhile: only who waits for the copies
// that are under way knows when the memory is free again.
bool LocalEndpoint::pieceOfGpu(const KeyedMemory& memory, Piece* piece) {
  if (!shares_) {
    broke(EINVAL, "a work on GPU memory where the lane takes none");
    return false;
  }
  if (!shares_->isNamed(memory, piece->from)) {
    if (!talkOfShares() || !shares_->name(memory, piece->from)) return false;
    (void)talkOfShares();
  }
  const auto name = shares_->nameOf(memory, piece->from);
  const size_t left = piece->whole - writing_.done;
  const bool staged = staging_->has(piece->from);
  if (name.share != 0 && !staged) {
    piece->share = name.share;
    piece->sharedAt = name.offset;
    piece->length = static_cast<uint32_t>(std::min({left, name.left, kMostShared}));
    return true;
  }
  const auto copies = shares_->copiesOf(memory.gpu());
  const auto bytes = copies ? staging_->bytesAt(piece->from, left, **copies, memory.key())
                            : Result<std::span<const std::byte>>(copies.error());
  if (!bytes) broke(EIO, bytes.error().message());
  if (!bytes || bytes->empty()) return false;
  piece->from = bytes->data();
  piece->length = static_cast<uint32_t>(std::min(bytes->size(), kMostInFrame));
  return true;
}

// Begins the copy. The caller has pinned the region of `to`.
bool LocalEndpoint::landGpu(const Taken& frame, std::byte* to, int gpu) {
  if (!shares_) return refuse(EPROTO, "the peer sent GPU memory where the lane takes none");
  const int by = gpu >= 0 ? gpu : shares_->gpu();
  const std::byte* from = nullptr;
  if (frame.place == Place::shared) {
    const auto found = shares_->find(frame.share(), frame.source, frame.length, by);
    if (!found) return refuse(EIO, found.error().message());
    from = *found;
  } else {
    from = frame.bytes(*mine_);
  }
  const auto copies = shares_->copiesOf(by);
  if (!copies) return refuse(EIO, copies.error().message());
  auto begun = gpu < 0                        ? (*copies)->fromGpu(to, from, frame.length)
               : frame.place == Place::shared ? (*copies)->within(to, from, frame.length)
                                              : (*copies)->toGpu(to, from, frame.length);
  if (!begun) return refuse(EIO, begun.error().message());
  begun_ = begun.take();
  queue_.device().flights()->add(frame.key, begun_, shares_);
  return true;
}

// Shares without a registration are to be dropped, also where the owner here has freed them already: the
// peer's mapping keeps such memory alive. False: there is no room for all of it now.
bool LocalEndpoint::talkOfShares() {
  while (life_.ready() && shares_) {
    const auto note = shares_->nextNote(queue_.table());
    if (!note) return true;
    Piece piece;
    piece.kind = note->kind;
    piece.key = note->share;
    piece.imm = note->mapped ? 1 : 0;
    if (!outbox_.put(piece, {0, 0, false, true}, consumed())) return false;
    untold_ = 0;
    shares_->noted(*note);
  }
  return true;
}

// All frames before this one are in place, and so no copy is under way with what is dropped.
void LocalEndpoint::heardOfShare(FrameKind kind, uint64_t share, uint32_t imm) {
  if (!shares_) return;
  if (kind == FrameKind::forget) return shares_->drop(share);
  if (kind == FrameKind::answer) return shares_->answered(share, imm != 0);
  shares_->offered(share);
  queue_.attend(this);
}

}  // namespace weft::local
