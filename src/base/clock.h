// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>

// Monotonic time. Production code asks Clock::now(); tests hand in a FakeClock and move it. Any thread.
namespace weft {

using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const { return std::chrono::steady_clock::now(); }  // vDSO: no system call
  static const Clock& system();
};

class FakeClock : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Nanoseconds(ticks_.load(std::memory_order_relaxed))); }
  void advance(Nanoseconds step) { ticks_.fetch_add(step.count(), std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> ticks_{1'000'000'000};  // not zero: a default TimePoint means "never"
};

}  // namespace weft
