// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>

// Monotonic time, and the way to let some of it pass. Production code asks the clock that it was handed, or
// Clock::system(); tests hand in a clock of their own. A wait for a time goes through `sleep` and `yield`, so
// a clock decides how waiting passes: with virtual time no thread really stands still. Any thread.
namespace weft {

using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const { return std::chrono::steady_clock::now(); }  // vDSO: no system call
  // The calling thread stands still for about this long. Not to be called inside an engine or with a lock
  // held.
  virtual void sleep(Nanoseconds time) const;
  // The calling thread lets another one run: for waits of microseconds that another thread ends.
  virtual void yield() const;
  static const Clock& system();
};

// Time that a test moves. Where the code under test sleeps, real time passes too, since another thread may do
// the awaited work. The clock moves by as much, so that a deadline passes as in production.
class FakeClock : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Nanoseconds(ticks_.load(std::memory_order_relaxed))); }
  void sleep(Nanoseconds time) const override {
    Clock::sleep(time);
    advance(time);
  }
  void advance(Nanoseconds step) const { ticks_.fetch_add(step.count(), std::memory_order_relaxed); }

 private:
  mutable std::atomic<int64_t> ticks_{1'000'000'000};  // not zero, as a default TimePoint means "never"
};

}  // namespace weft
