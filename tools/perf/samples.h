// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

// Processor time, and one value that stands for many: two things that each measurement needs. Any thread.
namespace weft::perf {

// Nanoseconds that processors have spent: CLOCK_THREAD_CPUTIME_ID, of the calling thread;
// CLOCK_PROCESS_CPUTIME_ID, of all threads of the process. Other work on the machine does not count. A system
// call.
inline int64_t processorTime(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The value that one in so many stays below. There is at least one.
inline double valueAt(std::vector<double> values, size_t oneIn) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(values.size() / oneIn);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

inline double median(std::vector<double> values) {
  return valueAt(std::move(values), 2);
}

}  // namespace weft::perf
