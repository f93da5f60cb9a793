// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>

// Monotonic time, and the only way to let some of it pass. Production code asks the clock it was handed, or
// Clock::system(); tests hand in a clock of their own. All waiting of weft goes through `sleep` and `yield`,
// so that a clock decides what waiting means: in a world of virtual time nothing really stands still. Any
// thread.
namespace weft {

using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const { return std::chrono::steady_clock::now(); }  // vDSO: no system call
  // The calling thread stands still for about this long. Never inside an engine, and never with a lock held.
  virtual void sleep(Nanoseconds time) const;
  // The calling thread lets another one run: for waits of microseconds, whose end another thread brings
  // about.
  virtual void yield() const;
  static const Clock& system();
};

// Time that a test moves. Where the code under test sleeps, real time passes too, since what it waits for may
// be done by another thread; the clock moves by as much, so that a deadline passes as it would in production.
class FakeClock : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Nanoseconds(ticks_.load(std::memory_order_relaxed))); }
  void sleep(Nanoseconds time) const override {
    Clock::sleep(time);
    advance(time);
  }
  void advance(Nanoseconds step) const { ticks_.fetch_add(step.count(), std::memory_order_relaxed); }

 private:
  mutable std::atomic<int64_t> ticks_{1'000'000'000};  // not zero: a default TimePoint means "never"
};

}  // namespace weft
