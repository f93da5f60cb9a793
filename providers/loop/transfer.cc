// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/transfer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>

namespace weft::loop {

namespace {

constexpr uint64_t encode(uint64_t generation, Phase phase) {
  return generation << 8 | static_cast<uint64_t>(phase);
}

// A random walk through all pieces: start anywhere, step by something coprime to their number.
void plan(Transfer& transfer, size_t pieceBytes, SeededRandom& random) {
  transfer.piece = pieceBytes ? pieceBytes : std::max<size_t>(transfer.length, 1);
  transfer.pieces = std::max<size_t>((transfer.length + transfer.piece - 1) / transfer.piece, 1);
  transfer.first = random.below(transfer.pieces);
  transfer.stride = transfer.pieces > 1 ? 1 + random.below(transfer.pieces - 1) : 1;
  while (std::gcd(transfer.stride, transfer.pieces) != 1) transfer.stride++;
}

int copy(const Regions& regions, Transfer& transfer, size_t from, size_t n) {
  if (n == 0) return 0;
  const KeyTable::Use remote = regions.target.use(
      transfer.remoteKey, transfer.op == Opcode::read ? PeerAccess::readAndWrite : PeerAccess::write);
  // Checked over the whole work, so that a bad one touches nothing.
  std::byte* there = remote.at(transfer.remoteOffset, transfer.length);
  if (!there) return EACCES;
  const KeyTable::Use pinned = transfer.localKey ? regions.sender.use(transfer.localKey) : KeyTable::Use();
  std::byte* here =
      transfer.localKey ? pinned.at(transfer.localOffset, transfer.length) : transfer.staging.data();
  if (!here) return EFAULT;
  if (transfer.length > regions.mostCopied) return 0;
  if (transfer.op == Opcode::read) std::swap(here, there);
  std::memmove(there + from, here + from, n);
  return 0;
}

}  // namespace

bool Transfer::claim(uint64_t expectedGeneration) {
  uint64_t expected = encode(expectedGeneration, Phase::waiting);
  // acquire: what the sender filled in
  return state.compare_exchange_strong(expected, encode(expectedGeneration, Phase::busy),
                                       std::memory_order_acquire);
}

bool Transfer::cancel() {
  for (;;) {
    uint64_t expected = encode(generation(), Phase::waiting);
    const uint64_t next = encode(generation() + 1, Phase::idle);
    if (state.compare_exchange_strong(expected, next, std::memory_order_acquire)) return true;
    if (static_cast<Phase>(expected & 0xff) != Phase::busy) return false;
    std::this_thread::yield();  // the target copies one piece, then gives it back
  }
}

void Transfer::release() {
  state.store(encode(generation() + 1, Phase::idle), std::memory_order_release);
}

Piece landPiece(const Regions& regions, Transfer& transfer, size_t pieceBytes, SeededRandom& random) {
  if (transfer.pieces == 0) plan(transfer, pieceBytes, random);
  const size_t index = (transfer.first + transfer.done * transfer.stride) % transfer.pieces;
  const size_t from = index * transfer.piece;
  const size_t n = std::min(transfer.piece, transfer.length - std::min(from, transfer.length));
  transfer.error = copy(regions, transfer, from, n);
  if (transfer.error) {
    transfer.set(Phase::failed);
    return {0, Phase::failed};
  }
  const Phase phase = ++transfer.done == transfer.pieces ? Phase::landed : Phase::waiting;
  transfer.set(phase);  // from here on it may be the sender's
  return {n, phase};
}

}  // namespace weft::loop
