// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <time.h>

namespace weft::stats {

inline uint64_t nanosecondsOf(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Nanoseconds since 1970.
inline uint64_t realtimeNow() {
  return nanosecondsOf(CLOCK_REALTIME);
}

// The processor's own counter: one instruction and no call, unlike a clock. The header says what it is in
// nanoseconds.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t now = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return nanosecondsOf(CLOCK_MONOTONIC);
#endif
}

}  // namespace weft::stats
