// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

// What a work of the protocol's is, as its completion tells it: the seam's context of 64 bits. Pure; any
// thread.
namespace weft::core {

enum class WorkKind : uint8_t { segment = 1, aside, eagerAgain, credit, unsignaled, flush };

// An aside is no message of its own: only its bytes are counted, and for an eager message that is written
// again the slot above them.
constexpr int kAsideBits = 26;
constexpr uint32_t kAsideBytes = (1u << kAsideBits) - 1;

// What comes back in a completion: kind 4 bits | lane 4 | small 24 | large 32.
inline uint64_t workContext(WorkKind kind, uint32_t large, uint32_t small, uint32_t lane) {
  return uint64_t{static_cast<uint8_t>(kind)} << 60 | uint64_t{lane & 15} << 56 |
         uint64_t{small & 0xffffff} << 32 | large;
}

// What comes back when a direct message has landed: in a receive's slot, by its code, or early.
inline uint64_t landedInSlot(uint32_t code) {
  return uint64_t{1} << 62 | code;
}
inline uint64_t landedEarly(uint32_t peering, uint32_t index) {
  return uint64_t{1} << 63 | uint64_t{peering} << 32 | index;
}
inline bool isEarly(uint64_t context) {
  return context >> 63 != 0;
}
inline uint32_t peeringOfEarly(uint64_t context) {
  return static_cast<uint32_t>(context >> 32) & 0x7fffffff;
}

// An aside's that was made beforehand, for so many bytes.
inline uint64_t withBytes(uint64_t context, uint64_t bytes) {
  return (context & ~uint64_t{kAsideBytes}) | bytes;
}

}  // namespace weft::core
