// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <time.h>

// How much of the time since it was made this thread had a processor. One thread.
namespace weft::bench {

class Presence {
 public:
  double share() const {
    return (cpuSeconds() - cpu_) / std::chrono::duration<double>(Time::now() - wall_).count();
  }

 private:
  using Time = std::chrono::steady_clock;
  static double cpuSeconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  }
  const Time::time_point wall_ = Time::now();
  const double cpu_ = cpuSeconds();
};

}  // namespace weft::bench
