// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "providers/common/key_table.h"
#include "providers/loop/card.h"
#include "src/base/random.h"
#include "weft/transport.h"

// A work on its way when the target lands it: filled by the sender's thread, landed by the target's poll,
// freed by the sender's. `state` says whose turn it is; a generation in it tells a target that the sender
// took the work back. Transfers sit in an Outbox, which outlives both Queues that know it.
namespace weft::loop {

enum class Phase : uint8_t {
  idle,     // the sender's, unused
  waiting,  // either may take it: the target to land a piece, the sender to cancel
  busy,     // the target is copying a piece
  landed,   // the sender's, to complete
  failed,   // the sender's, to complete with `error`
};

struct Transfer {
  std::atomic<uint64_t> state{0};  // generation << 8 | Phase

  // The sender's, fixed while waiting.
  Opcode op = Opcode::write;
  uint64_t localKey = 0;  // 0: the bytes are in the staging below
  uint64_t localOffset = 0;
  uint64_t remoteKey = 0;
  uint64_t remoteOffset = 0;
  size_t length = 0;
  uint32_t imm = 0;      // of a message, whose label's words follow
  RemoteMemory label{};  // until it is placed; then the target's own memory stands in the three above
  std::vector<std::byte> staging;  // grows during warm-up, never shrinks

  // The target's, while busy.
  int error = 0;
  size_t piece = 0;  // bytes of each but the last
  size_t pieces = 0;
  size_t first = 0;  // which piece lands first, and how far on the next one is
  size_t stride = 1;
  size_t done = 0;
  uint64_t placed = 0;    // of a message: what its Placer gave back
  bool isPlaced = false;  // of a message: it was asked

  uint64_t generation() const { return state.load(std::memory_order_relaxed) >> 8; }
  Phase phase() const { return static_cast<Phase>(state.load(std::memory_order_acquire) & 0xff); }
  void publish() { set(Phase::waiting); }
  void set(Phase phase) {
    state.store(generation() << 8 | static_cast<uint64_t>(phase), std::memory_order_release);
  }

  // The target's side: false when the sender took the work back.
  bool claim(uint64_t expectedGeneration);
  // The sender's side: idle again, under a new generation. False when it was landed or failed already.
  bool cancel();
  void release();
};

struct Outbox {
  Outbox(size_t n, std::shared_ptr<KeyTable> sendersRegions, std::shared_ptr<Card> sendersCard)
      : transfers(n), regions(std::move(sendersRegions)), card(std::move(sendersCard)) {}
  std::vector<Transfer> transfers;
  const std::shared_ptr<KeyTable> regions;  // of the sender's Device
  const std::shared_ptr<Card> card;         // likewise; null: works take no time
};

struct Piece {
  size_t bytes = 0;
  Phase phase = Phase::waiting;  // in which the transfer was given back
};

// The two tables that a work's keys are of.
struct Regions {
  KeyTable& target;
  KeyTable& sender;
  size_t mostCopied = ~size_t{0};  // of a larger transfer no bytes are moved
};

// Lands one piece of a claimed transfer and gives it back. `pieceBytes` 0: all at once.
Piece landPiece(const Regions& regions, Transfer& transfer, size_t pieceBytes, SeededRandom& random);

}  // namespace weft::loop
