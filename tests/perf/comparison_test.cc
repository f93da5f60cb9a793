// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/comparison.h"

#include <cmath>
#include <string>

#include "src/base/config.h"
#include "tests/support/catch.h"

namespace weft::perf {

namespace {

bool near(double a, double b) {
  return std::abs(a - b) < 1e-9;
}

TEST_CASE("a ratio is the median of the rounds, with the lowest and the highest") {
  const Ratio odd = ratioOf({3, 1, 2});
  REQUIRE((odd.median == 2 && odd.low == 1 && odd.high == 3));
  REQUIRE(ratioOf({4, 1, 2, 3}).median == 2.5);
  REQUIRE_FALSE(ratioOf({0.9, 1.2}).differs());
  REQUIRE(ratioOf({1.01, 1.2}).differs());
  REQUIRE(ratioOf({0.5, 0.99}).differs());
}

TEST_CASE("the ratio of a run is the mean over what was measured, round by round") {
  RunRatios run(3);
  run.add(8, {1, 2, 4});
  run.add(8, {4, 2, 1});
  const Ratio ratio = run.ratio();
  REQUIRE((near(ratio.low, 2) && near(ratio.median, 2) && near(ratio.high, 2)));
}

TEST_CASE("each decade of sizes has a ratio of its own") {
  RunRatios run(2);
  run.add(64, {1, 4});
  run.add(0, {8, 8});
  run.add(16, {4, 1});
  run.add(128, {3, 3});
  const std::vector<DecadeRatio> decades = run.decades();
  REQUIRE(decades.size() == 3);
  REQUIRE((decades[0].smallest == 0 && decades[0].largest == 0 && near(decades[0].ratio.median, 8)));
  REQUIRE((decades[1].smallest == 16 && decades[1].largest == 64 && near(decades[1].ratio.low, 2)));
  REQUIRE((decades[2].smallest == 128 && decades[2].largest == 128 && near(decades[2].ratio.high, 3)));
}

TEST_CASE("rounds add up to one sample") {
  Sample sum;
  for (int round = 1; round <= 4; ++round) {
    Sample one;
    one.microseconds = round;
    one.messages = 10;
    one.cpuMicroseconds = 5;
    one.wrong = 1;
    one.latency.record(100);
    addRound(&sum, one, round);
  }
  REQUIRE(near(sum.microseconds, 2.5));
  REQUIRE(near(sum.cpuPerMessage(), 0.5));
  REQUIRE(sum.wrong == 4);
  REQUIRE(sum.latency.count() == 4);
}

TEST_CASE("a line of CSV tells what was wrong of which plugin") {
  const Options options;
  Results results;
  results.options = &options;
  results.operation = &operations().front();
  results.conditions.other = "libnccl-net-other.so";
  Row row;
  row.outOfPlace.emplace().other.emplace().wrong = 7;
  results.rows.push_back(row);
  const std::string text = csvDocument(results);
  REQUIRE(text.find(",other_wrong\n") != std::string::npos);
  REQUIRE(text.ends_with(",7\n"));
}

TEST_CASE("the environment is as it was when the scope ends") {
  const EnvironmentScope outer({"WEFT_TEST_KEPT=before"});
  {
    const EnvironmentScope scope({"WEFT_TEST_KEPT=changed", "WEFT_TEST_NEW=a=b", "WEFT_TEST_NEW=c"});
    REQUIRE(environmentValue("WEFT_TEST_KEPT") == std::string("changed"));
    REQUIRE(environmentValue("WEFT_TEST_NEW") == std::string("c"));
  }
  REQUIRE(environmentValue("WEFT_TEST_KEPT") == std::string("before"));
  REQUIRE(environmentValue("WEFT_TEST_NEW") == nullptr);
}

}  // namespace

}  // namespace weft::perf
