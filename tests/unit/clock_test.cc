// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/clock.h"

#include "tests/support/catch.h"

using namespace std::chrono_literals;

TEST_CASE("a clock that sleeps is later afterwards") {
  const weft::Clock& clock = weft::Clock::system();
  const weft::TimePoint before = clock.now();
  clock.sleep(2ms);
  CHECK(clock.now() - before >= 2ms);
}

TEST_CASE("a wait with a deadline ends though nobody moves the fake clock") {
  const weft::FakeClock fake;
  const weft::Clock& clock = fake;
  const weft::TimePoint deadline = clock.now() + 1ms;
  int rounds = 0;
  while (clock.now() < deadline) {
    clock.sleep(100us);
    rounds++;
  }
  CHECK(rounds == 10);
}
