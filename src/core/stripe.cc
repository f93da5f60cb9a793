// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/stripe.h"

#include <algorithm>

namespace weft::core {

namespace {

constexpr size_t kMaxLanes = 16;

// Shares with which every lane in `use` is predicted to finish at the same moment: rate x T - outstanding.
struct Shares {
  double bytes[kMaxLanes] = {};

  void compute(std::span<const LaneLoad> lanes, uint32_t use, uint64_t size) {
    double backlog = static_cast<double>(size), rate = 0;
    for (size_t i = 0; i < lanes.size(); i++) {
      if (!(use >> i & 1)) continue;
      backlog += static_cast<double>(lanes[i].outstandingBytes);
      rate += lanes[i].bytesPerUs;
    }
    for (size_t i = 0; i < lanes.size(); i++) {
      const bool in = use >> i & 1;
      bytes[i] =
          in ? lanes[i].bytesPerUs * backlog / rate - static_cast<double>(lanes[i].outstandingBytes) : 0;
    }
  }

  size_t smallest(uint32_t use, size_t count) const {
    size_t least = kMaxLanes;
    for (size_t i = 0; i < count; i++) {
      if ((use >> i & 1) && (least == kMaxLanes || bytes[i] < bytes[least])) least = i;
    }
    return least;
  }
};

// A lane whose rate is not known is tried like the fastest: taken for slow it would get little, and never
// show.
void assumeRates(std::span<LaneLoad> lanes) {
  float fastest = 0;
  bool all = true;
  for (const LaneLoad& lane : lanes) {
    fastest = std::max(fastest, lane.bytesPerUs);
    all &= lane.bytesPerUs > 0;
  }
  if (all) return;
  for (LaneLoad& lane : lanes)
    if (lane.bytesPerUs <= 0) lane.bytesPerUs = fastest > 0 ? fastest : 1;
}

uint64_t alignUp(uint64_t n) {
  return (n + kSegmentAlign - 1) / kSegmentAlign * kSegmentAlign;
}

}  // namespace

size_t planSegments(std::span<LaneLoad> lanes, uint64_t size, uint64_t gate, uint32_t turn,
                    std::span<Segment> out) {
  lanes = lanes.first(std::min({lanes.size(), kMaxLanes, out.size()}));
  uint32_t use = 0;
  for (size_t i = 0; i < lanes.size(); i++) use |= static_cast<uint32_t>(lanes[i].up) << i;
  if (use == 0) return 0;
  assumeRates(lanes);
  if (size < 2 * gate || (use & (use - 1)) == 0) {
    const auto loadOf = [&](size_t i) { return lanes[i]; };
    out[0].lane = static_cast<uint8_t>(quickestLane(lanes.size(), loadOf, size, 1, turn % lanes.size()));
    out[0].offset = 0;
    out[0].length = size;
    return 1;
  }
  // Lanes whose fair share is below the gate are left out, the slowest first, until all that remain are worth
  // it.
  Shares shares;
  shares.compute(lanes, use, size);
  for (size_t least = shares.smallest(use, lanes.size());
       (use & (use - 1)) != 0 && shares.bytes[least] < static_cast<double>(gate);
       least = shares.smallest(use, lanes.size())) {
    use &= ~(uint32_t{1} << least);
    shares.compute(lanes, use, size);
  }
  size_t count = 0;
  uint64_t offset = 0;
  for (size_t i = 0; i < lanes.size() && offset < size; i++) {
    if (!(use >> i & 1)) continue;
    const bool last = use >> (i + 1) == 0;
    const uint64_t share =
        last ? size - offset : std::min(size - offset, alignUp(static_cast<uint64_t>(shares.bytes[i])));
    out[count++] = {static_cast<uint8_t>(i), offset, share};
    offset += share;
  }
  return count;
}

}  // namespace weft::core
