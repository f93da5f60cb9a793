// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/cts_ring.h"

#include <deque>
#include <set>

#include "src/base/random.h"
#include "tests/support/catch.h"

using namespace weft;
using core::CtsRing;
using core::kRingPositions;
using core::SequenceSpace;

TEST_CASE("a chain of CTS names each CTS's successor, and uses no position twice") {
  CtsRing ring(SequenceSpace(32));
  SeededRandom random(5);
  std::deque<CtsRing::Place> written;
  std::set<uint16_t> inUse;
  uint16_t promised = 0;
  for (uint32_t step = 0; step < 20000; step++) {
    if (ring.canWrite() && (written.empty() || random.below(2) == 0)) {
      const CtsRing::Place place = ring.take();
      REQUIRE(place.position == promised);
      REQUIRE(inUse.insert(place.position).second);
      promised = place.next;
      written.push_back(place);
    } else {
      const size_t which = random.below(written.size());
      const CtsRing::Place place = written[which];
      written.erase(written.begin() + static_cast<std::ptrdiff_t>(which));
      inUse.erase(place.position);
      ring.done(place.position, place.sequence);
    }
    REQUIRE(inUse.count(promised) == 0);
  }
}

TEST_CASE("a ring is full when all but the promised position are in use") {
  CtsRing ring(SequenceSpace(32));
  std::deque<CtsRing::Place> written;
  while (ring.canWrite()) written.push_back(ring.take());
  CHECK(written.size() == kRingPositions - 1);

  // Event: one message arrives. Expect: room for one CTS, behind which its position is promised; no more if
  // it is said twice.
  for (int i = 0; i < 2; i++) ring.done(written[7].position, written[7].sequence);
  REQUIRE(ring.canWrite());
  CHECK(ring.take().next == written[7].position);
  CHECK_FALSE(ring.canWrite());
}

// Over several rails or connections they do, and for as long as a job runs.
TEST_CASE("CTS lie side by side though their messages arrive in any order") {
  CtsRing ring(SequenceSpace(32));
  SeededRandom random(11);
  std::deque<CtsRing::Place> written;
  unsigned beside = 0;
  constexpr unsigned kLines = 100'000;
  uint16_t last = 0;
  for (unsigned i = 0; i < kLines; i++) {
    if (written.size() == 8) {
      const auto which = static_cast<std::ptrdiff_t>(random.below(written.size()));
      ring.done(written[static_cast<size_t>(which)].position, written[static_cast<size_t>(which)].sequence);
      written.erase(written.begin() + which);
    }
    written.push_back(ring.take());
    beside += written.back().position == last + 1;
    last = written.back().position;
  }
  CHECK(beside > kLines / 100 * 95);
}
