// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/core/net.h"
#include "src/rma/wire.h"

// A registration that all ranks of a team made together: this rank's memory, and how large every rank's is.
// The team owns it. Filled while the ranks register; immutable afterwards, but for `words` and `uses`,
// which the team's lock guards.
namespace weft::rma {

class Team;

struct Window {
  Team* team = nullptr;
  uint32_t number = 0;  // the same on all ranks: registrations are counted
  MemoryDesc memory;
  bool neverReset = false;  // nobody but signals writes to this memory
  std::vector<Descriptor> ranks;
  std::vector<core::MemoryHandle*> sending;  // by rank; null: this rank itself
  std::vector<core::MemoryHandle*> receiving;
  std::unordered_map<uint64_t, uint64_t> words;  // on a GPU, by offset: the values of signals
  // Memory of a GPU that the fabric does not reach: the driver copies it, through host memory. The handles
  // above are null then.
  bool staged = false;
  std::vector<uint32_t> uses;  // by rank: puts, gets and arrivals that touch this rank's memory now
  bool leaving = false;        // this rank gives it up: what is put into it goes nowhere

  void use(uint32_t by) { uses[by]++; }
  void unuse(uint32_t by) { uses[by]--; }
  bool inUse() const {
    return std::any_of(uses.begin(), uses.end(), [](uint32_t one) { return one > 0; });
  }

  bool host() const { return memory.kind == MemoryKind::host; }
  bool direct() const { return !host() && !staged; }  // the fabric writes into the GPU, past the processor
  // The messages of a put or get between this memory and that rank's part of the other window.
  uint32_t piece(const Window& other, uint32_t rank) const {
    return staged || other.ranks[rank].staged != 0 ? kStagedPieceBytes : kPieceBytes;
  }
  std::byte* at(uint64_t offset) const { return static_cast<std::byte*>(memory.address) + offset; }
  // The range lies within that rank's memory; written so that no sum overflows.
  bool covers(uint32_t rank, uint64_t offset, uint64_t bytes) const {
    const uint64_t length = ranks[rank].length;
    return offset <= length && bytes <= length - offset;
  }
  // For errors.
  std::string describe(uint32_t rank, uint64_t offset, uint64_t bytes) const;
};

}  // namespace weft::rma
