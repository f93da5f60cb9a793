// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/stripe.h"

#include <array>
#include <vector>

#include "tests/support/catch.h"

// How a message is cut over lanes, by what is known of their rates.
namespace weft::core {
namespace {

constexpr uint64_t kGate = 128 << 10;
constexpr uint64_t kMessage = 16 << 20;

// Bytes for each lane.
std::vector<uint64_t> shares(std::vector<LaneLoad> lanes, uint64_t size, uint32_t turn = 0) {
  std::array<Segment, 16> segments;
  const size_t count = planSegments(lanes, size, kGate, turn, segments);
  std::vector<uint64_t> bytes(lanes.size());
  uint64_t next = 0;
  for (size_t i = 0; i < count; i++) {
    CHECK(segments[i].offset == next);
    CHECK(segments[i].offset % kSegmentAlign == 0);
    next += segments[i].length;
    bytes[segments[i].lane] += segments[i].length;
  }
  CHECK(next == size);
  return bytes;
}

bool near(uint64_t a, uint64_t b) {
  return a > b - b / 100 && a < b + b / 100;
}

LaneLoad lane(float rate, uint64_t outstanding = 0) {
  return {true, outstanding, rate};
}

TEST_CASE("a message is cut by the rates of its lanes") {
  const auto bytes = shares({lane(100), lane(50), lane(100), lane(100)}, kMessage);
  CHECK(near(bytes[1] * 2, bytes[0]));
  CHECK(near(bytes[0], bytes[3]));
}

TEST_CASE("lanes of which nothing is known get the same, and what the fastest of the others get") {
  CHECK(shares({lane(0), lane(0), lane(0), lane(0)}, kMessage) == std::vector<uint64_t>(4, kMessage / 4));
  const auto bytes = shares({lane(20'000), lane(0), lane(10'000), lane(0)}, kMessage);
  CHECK(near(bytes[1], bytes[0]));
  CHECK(near(bytes[3], bytes[0]));
  CHECK(near(bytes[2] * 2, bytes[0]));
}

TEST_CASE("small messages try a lane of which nothing is known") {
  std::vector<uint64_t> used(2);
  for (uint32_t turn = 0; turn < 10; turn++) {
    const auto bytes = shares({lane(20'000), lane(0)}, 4096, turn);
    for (size_t i = 0; i < 2; i++) used[i] += bytes[i];
  }
  CHECK(used[0] == used[1]);
}

TEST_CASE("a lane that has much to do already gets less") {
  const auto bytes = shares({lane(100, 4 << 20), lane(100)}, kMessage);
  CHECK(near(bytes[1] - bytes[0], 4 << 20));
}

TEST_CASE("lanes that are down carry nothing") {
  LaneLoad down = lane(100);
  down.up = false;
  CHECK(shares({down, lane(1)}, kMessage) == std::vector<uint64_t>{0, kMessage});
}

TEST_CASE("the lane that is done first is taken, of equal ones the first at or after the turn") {
  const auto quickest = [](const std::vector<LaneLoad>& lanes, size_t turn, float unknown = 1) {
    return quickestLane(
        lanes.size(), [&](size_t i) { return lanes[i]; }, 1000, unknown, turn);
  };
  CHECK(quickest({lane(1), lane(1), lane(1)}, 0) == 0);
  CHECK(quickest({lane(1), lane(1), lane(1)}, 2) == 2);
  CHECK(quickest({lane(1, 5000), lane(1), lane(1, 5000)}, 2) == 1);
  CHECK(quickest({lane(1), lane(10, 5000)}, 0) == 1);         // behind more, and quicker all the same
  CHECK(quickest({lane(5), lane(0)}, 0, 10) == 1);            // of unknown rate
  CHECK(quickest({{false, 0, 5}, {true, 9000, 1}}, 0) == 1);  // the other one is down
  CHECK(quickest({{false, 0, 5}, {false, 0, 1}}, 1) == -1);
}

}  // namespace
}  // namespace weft::core
