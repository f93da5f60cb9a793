// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// How long things took, without keeping each of them: buckets that are at most 1/64 of their value wide, the
// smallest and the largest exactly. Plain data, so that ranks can send it to each other. Nanoseconds. Used by
// one thread.
namespace weft::perf {

inline double inMicroseconds(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e3;
}

class Histogram {
 public:
  void record(uint64_t nanoseconds);
  void merge(const Histogram& other);

  uint64_t count() const { return count_; }
  uint64_t min() const { return count_ > 0 ? min_ : 0; }
  uint64_t max() const { return max_; }
  // The value that `share` (0 to 1) of all do not exceed; 0 of an empty one.
  uint64_t quantile(double share) const;
  // How many lie from `low` to below `high`, by whole buckets: bounds that are powers of two are exact.
  uint64_t countBetween(uint64_t low, uint64_t high) const;

 private:
  static constexpr int kBits = 6;  // buckets an octave: 64
  static constexpr size_t kPerOctave = size_t{1} << kBits;
  static constexpr int kOctaves = 40;  // beyond 2^46 ns, 19 hours, everything is in the last
  static constexpr size_t kBuckets = kPerOctave * (kOctaves + 1);

  static size_t bucketOf(uint64_t value);
  static uint64_t lowerBound(size_t bucket);

  uint64_t count_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  std::array<uint64_t, kBuckets> buckets_{};
};

}  // namespace weft::perf
