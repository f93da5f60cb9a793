// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/result.h"

// Unpredictable bytes from the kernel (secrets, incarnations), and a small seeded generator (faults, tests,
// data). Any thread; a SeededRandom has one owner.
namespace weft {

// An error where the kernel gives none. A network is not opened then: NCCL is told so, and the job
// says why, before anything is protected by it.
Status checkRandom();

// Where the kernel stops giving random bytes after that, the process ends: bytes that a stranger knows would
// let him into the job, and there is nobody to hand an error to in the middle of a handshake.
void fillRandom(std::span<std::byte> out);
uint64_t randomU64();

// SplitMix64 (Steele, Lea and Flood, 2014): small, seedable, good enough to choose faults. Not for secrets.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // From 0 to `bound` - 1; 0 for a bound of 0.
  uint64_t below(uint64_t bound) { return bound ? next() % bound : 0; }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }

 private:
  uint64_t state_;
};

}  // namespace weft
