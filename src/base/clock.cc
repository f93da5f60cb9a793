// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/clock.h"

#include <sched.h>
#include <time.h>

// The system's clock, by nanosleep(2) and sched_yield(2).
namespace weft {

// A signal may end the sleep early; every caller checks again what it waits for.
void Clock::sleep(Nanoseconds time) const {
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec pause{time.count() / kSecond, time.count() % kSecond};
  ::nanosleep(&pause, nullptr);
}

void Clock::yield() const {
  ::sched_yield();
}

const Clock& Clock::system() {
  static const Clock clock;
  return clock;
}

}  // namespace weft
