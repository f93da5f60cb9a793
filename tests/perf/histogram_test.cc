// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/catch.h"

namespace weft::perf {

namespace {

// Spread over many octaves, no order.
std::vector<uint64_t> someTimes() {
  std::vector<uint64_t> times;
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    times.push_back(state >> 24 >> (state >> 59));
  }
  return times;
}

TEST_CASE("quantiles are those of the sorted times, to a hundredth") {
  auto times = someTimes();
  Histogram histogram;
  for (const uint64_t time : times) histogram.record(time);
  std::sort(times.begin(), times.end());
  REQUIRE(histogram.count() == times.size());
  REQUIRE(histogram.min() == times.front());
  REQUIRE(histogram.max() == times.back());
  for (const double share : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(times.size()))) - 1;
    const auto exact = static_cast<double>(times[at]);
    INFO(share << ": " << exact);
    REQUIRE(std::abs(static_cast<double>(histogram.quantile(share)) - exact) <= exact / 100);
  }
}

TEST_CASE("merged histograms are one histogram") {
  const auto times = someTimes();
  Histogram whole;
  Histogram even;
  Histogram odd;
  for (size_t i = 0; i < times.size(); ++i) {
    whole.record(times[i]);
    (i % 2 == 0 ? even : odd).record(times[i]);
  }
  even.merge(odd);
  REQUIRE(even.count() == whole.count());
  REQUIRE(even.min() == whole.min());
  REQUIRE(even.max() == whole.max());
  for (const double share : {0.01, 0.5, 0.99}) REQUIRE(even.quantile(share) == whole.quantile(share));
}

TEST_CASE("octaves hold what belongs there") {
  Histogram histogram;
  for (const uint64_t time : {0u, 1u, 63u, 64u, 127u, 128u, 1000u, 1023u, 1024u}) histogram.record(time);
  REQUIRE(histogram.countBetween(64, 128) == 2);
  REQUIRE(histogram.countBetween(128, 256) == 1);
  REQUIRE(histogram.countBetween(512, 1024) == 2);
  REQUIRE(histogram.countBetween(1024, 2048) == 1);
}

TEST_CASE("a histogram without times is all zero") {
  const Histogram histogram;
  REQUIRE(histogram.min() == 0);
  REQUIRE(histogram.max() == 0);
  REQUIRE(histogram.quantile(0.5) == 0);
}

}  // namespace

}  // namespace weft::perf
