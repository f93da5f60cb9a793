// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <string>

// A line on a terminal that says how far a long run is, overwritten in place and wiped before anything else
// is printed. Silent without a terminal and in the first seconds. Used by one thread.
namespace weft::perf {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr const char* kWipe = "\r\x1b[K";  // to the terminal, before anything else is printed there

  // `fd` is the terminal, not owned; -1 where there is none. `steps` is how often begin will be called.
  Progress(int fd, int steps) : fd_(fd), steps_(steps) {}

  bool enabled() const { return fd_ >= 0; }
  // The measurement from now on, in that many iterations.
  void begin(std::string label, int iterations);
  // More of them than begin was told.
  void extend(int iterations) { iterations_ += iterations; }
  void iteration(Clock::time_point now);
  void wipe();

 private:
  void show(Clock::time_point now);

  int fd_;
  int steps_;
  int step_ = 0;
  int iterations_ = 0;
  int done_ = 0;
  std::string label_;
  bool shown_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point next_ = started_ + std::chrono::seconds(2);
};

}  // namespace weft::perf
