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

// The lane that would finish so many bytes more first, -1 when none is up; of equal ones the first at or
// after `turn`, which is below `count`. A lane whose rate is not known is taken for one of rate `unknown`.
template <class LoadOf>
int quickestLane(size_t count, LoadOf loadOf, uint64_t bytes, float unknown, size_t turn) {
  int best = -1;
  float least = 0;
  for (size_t left = count; left > 0; left--) {
    const LaneLoad lane = loadOf(turn);
    const float rate = lane.bytesPerUs > 0 ? lane.bytesPerUs : unknown;
    const float us = static_cast<float>(static_cast<int64_t>(lane.outstandingBytes + bytes)) / rate;
    if (lane.up && (best < 0 || us < least)) {
      best = static_cast<int>(turn);
      least = us;
    }
    turn = turn + 1 < count ? turn + 1 : 0;
  }
  return best;
}

constexpr uint64_t kSegmentAlign = 128;  // LL128's line, and two cache lines: no two rails share one

// Cuts `size` bytes into at most out.size() segments so that all chosen lanes finish at about the same time,
// none carrying less than `gate` bytes. Below twice the gate the message stays whole, on the lane predicted
// to finish it first; `turn` breaks ties round robin. Returns the number of segments, 0 when no lane is up.
size_t planSegments(std::span<LaneLoad> lanes, uint64_t size, uint64_t gate, uint32_t turn,
                    std::span<Segment> out);

}  // namespace weft::core
