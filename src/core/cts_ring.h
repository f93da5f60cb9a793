// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "src/core/growing_ring.h"
#include "src/core/sequence.h"
#include "src/core/wire.h"

// The receiver's view of the ring it writes CTS into: which positions are free, and the
// chain. A position may be used again once its sender has read the CTS: known when the message it asked for
// arrived, or, where an eager message made it needless, when a later header says how far the sender has read.
// Pure; one thread.
namespace weft::core {

class CtsRing {
 public:
  explicit CtsRing(const SequenceSpace& space) : space_(space), overtaken_(512) {
    for (uint16_t i = 1; i < kRingPositions; i++) give(i);
  }

  bool canWrite() const { return freeCount_ > 0; }
  bool hasOvertaken() const { return !overtaken_.empty(); }

  struct Place {
    uint16_t position;
    uint16_t next;
    uint32_t sequence;
  };

  uint16_t nextPosition() const { return next_; }  // the next CTS's

  // The next CTS's place; only when canWrite().
  Place take() {
    const Place place{next_, takeFreeBehind(next_), sequence_};
    freeCount_--;
    next_ = place.next;
    sequence_ = space_.next(sequence_);
    return place;
  }

  // The message of this CTS arrived, so the sender has read it and, the chain being read in order, all
  // before it.
  void done(uint16_t position, uint32_t sequence) {
    give(position);
    readUpTo(space_.next(sequence));
  }

  // An eager message came instead; the sender may not have read the CTS yet.
  void overtaken(uint16_t position, uint32_t sequence, uint8_t lane) {
    overtaken_.push({position, sequence, lane});
  }

  // visit(position, lane&) of every overtaken CTS the sender may not have read.
  template <class Visit>
  void eachOvertaken(Visit visit) {
    overtaken_.each([&](Overtaken& cts) { visit(cts.position, cts.lane); });
  }

  // The sender has read every CTS before `sequence`.
  void readUpTo(uint32_t sequence) {
    while (!overtaken_.empty() && space_.before(overtaken_.front().sequence, sequence)) {
      give(overtaken_.front().position);
      overtaken_.pop();
    }
  }

 private:
  struct Overtaken {
    uint16_t position = 0;
    uint32_t sequence = 0;
    uint8_t lane = 0;
  };

  static constexpr size_t kBits = 64;

  void give(uint16_t position) {
    uint64_t& word = free_[position / kBits];
    const uint64_t bit = uint64_t{1} << position % kBits;
    freeCount_ += (word & bit) == 0 ? 1U : 0U;
    word |= bit;
  }

  // Round the ring; only when there is one.
  uint16_t takeFreeBehind(uint16_t position) {
    size_t word = position / kBits;
    uint64_t bits = free_[word] & (~uint64_t{1} << position % kBits);
    while (bits == 0) [[unlikely]] {
        word = word + 1 < free_.size() ? word + 1 : 0;
        bits = free_[word];
      }
    free_[word] ^= bits & -bits;
    return static_cast<uint16_t>(word * kBits + static_cast<size_t>(std::countr_zero(bits)));
  }

  SequenceSpace space_;
  // A bit for each position. CTS go round the ring in its order, whatever the order in which messages make
  // positions free: so CTS that follow each other lie side by side, and several can leave in one write.
  std::array<uint64_t, kRingPositions / kBits> free_{};
  static_assert(kRingPositions % kBits == 0);
  uint32_t freeCount_ = 0;
  uint16_t next_ = 0;  // promised to the next CTS by the one before it
  uint32_t sequence_ = 0;
  GrowingRing<Overtaken> overtaken_;
};

}  // namespace weft::core
