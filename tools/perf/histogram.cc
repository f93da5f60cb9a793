// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weft::perf {

// Values below 64 have a bucket each; above, the leading 7 bits decide.
size_t Histogram::bucketOf(uint64_t value) {
  const int octave = std::max(0, static_cast<int>(std::bit_width(value)) - kBits - 1);
  const size_t bucket = static_cast<size_t>(octave) * kPerOctave + static_cast<size_t>(value >> octave);
  return std::min(bucket, kBuckets - 1);
}

uint64_t Histogram::lowerBound(size_t bucket) {
  if (bucket < 2 * kPerOctave) return bucket;
  const size_t octave = bucket / kPerOctave - 1;
  return static_cast<uint64_t>(bucket - octave * kPerOctave) << octave;
}

void Histogram::record(uint64_t nanoseconds) {
  ++buckets_[bucketOf(nanoseconds)];
  ++count_;
  min_ = std::min(min_, nanoseconds);
  max_ = std::max(max_, nanoseconds);
}

void Histogram::merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

uint64_t Histogram::quantile(double share) const {
  const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen == 0 || seen < wanted) continue;
    const uint64_t low = lowerBound(i);
    const uint64_t middle = low + (lowerBound(i + 1) - low) / 2;
    return std::clamp(middle, min(), max_);
  }
  return max_;
}

uint64_t Histogram::countBetween(uint64_t low, uint64_t high) const {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBuckets; ++i)
    if (lowerBound(i) >= low && lowerBound(i) < high) sum += buckets_[i];
  return sum;
}

}  // namespace weft::perf
