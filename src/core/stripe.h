// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// Which lanes carry a message, and how much of it each. Pure arithmetic; any thread; bytes and bytes per
// microsecond.
namespace weft::core {

struct LaneLoad {
  bool up = false;
  uint64_t outstandingBytes = 0;
  float bytesPerUs = 0;  // measured; 0: not known, taken for that of the fastest
};

struct Segment {
  uint8_t lane = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

constexpr uint64_t kSegmentAlign = 128;  // LL128's line, and two cache lines: no two rails share one

// Cuts `size` bytes into at most out.size() segments so that all chosen lanes finish at about the same time,
// none carrying less than `gate` bytes. Below twice the gate the message stays whole, on the lane predicted
// to finish it first; `turn` breaks ties round robin. Returns the number of segments, 0 when no lane is up.
size_t planSegments(std::span<LaneLoad> lanes, uint64_t size, uint64_t gate, uint32_t turn,
                    std::span<Segment> out);

}  // namespace weft::core
