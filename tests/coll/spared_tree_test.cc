// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "src/base/config.h"
#include "tests/coll/scenarios.h"
#include "tests/coll/tree_of_daemons.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// Ranks that lose the daemons which reduce for them, over the loop provider.
using namespace weft;
using namespace weft::coll;
using namespace weft::test;

namespace {

constexpr int kRanks = 4;

// Steps these ranks until each of them is done or has failed.
void finish(Run& run, std::initializer_list<int> ranks) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  for (size_t left = 1; left > 0;) {
    left = 0;
    for (const int rank : ranks) left += run.step(rank) ? 0 : 1;
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
}

void stepAll(Run& run, int passes, std::initializer_list<int> ranks) {
  for (int pass = 0; pass < passes; pass++)
    for (const int rank : ranks) run.step(rank);
}

bool says(const Run& run, int rank, const char* words) {
  return run.failure(rank).value_or("").find(words) != std::string::npos;
}

// Several operations at a time, with the tree's death at a moment that the seed chooses. They all go
// on or all give up: the same everywhere, and never a wrong result.
bool survives(uint64_t seed) {
  CAPTURE(seed);
  SeededRandom random(seed);
  TreeOfDaemons tree(random.below(2) == 0 ? 0 : 2);
  Ranks ranks(kRanks);
  ranks.form(tree.sparedMaker());
  std::vector<std::unique_ptr<Run>> runs;
  for (uint64_t i = 0; i < 6; i++)
    runs.push_back(std::make_unique<Run>(ranks, allReduce(4 * (1 + random.below(20'000))), seed + i));
  const uint64_t until = random.below(3000);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20 * patience());
  size_t left = 1;
  for (uint64_t pass = 0; left > 0; pass++) {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    if (pass == until) tree.root().kill();
    left = 0;
    for (int rank = 0; rank < kRanks; rank++) {
      bool before = true;  // the order of operations is the same on all ranks
      for (const auto& run : runs) {
        if (before || run->started(rank)) left += run->step(rank) ? 0 : 1;
        before = before && run->started(rank);
        left += run->started(rank) ? 0 : 1;
      }
    }
  }
  bool allRight = true;
  for (const auto& run : runs)
    for (int rank = 0; rank < kRanks; rank++) allRight = allRight && run->done(rank);
  for (const auto& run : runs) {
    if (allRight) run->check();
    for (int rank = 0; rank < kRanks && !allRight; rank++) {
      INFO(run->failure(rank).value_or("done"));
      CHECK((run->done(rank) || says(*run, rank, "results that others lack") ||
             says(*run, rank, "nothing left to do")));
    }
  }
  return allRight;
}

}  // namespace

TEST_CASE("spared tree: it does what a tree does") {
  TreeOfDaemons tree(0);
  Ranks ranks(kRanks);
  ranks.form(tree.sparedMaker());
  checkSizes(ranks);
  checkWindows(ranks);
  checkManyAtOnce(ranks, 5);
}

TEST_CASE("spared tree: an operation that no rank has finished is finished by the ranks") {
  for (const bool root : {true, false}) {
    TreeOfDaemons tree(2);
    Ranks ranks(kRanks);
    ranks.form(tree.sparedMaker());
    Run run(ranks, allReduce(100'000), 1);
    stepAll(run, 1000, {0, 1, 3});
    (root ? tree.root() : tree.leaf(0)).kill();
    stepAll(run, 1000, {0, 1, 3});  // they wait for the rank that has not come yet
    for (const int rank : {0, 1, 3}) CHECK_FALSE(run.done(rank));
    finish(run, {0, 1, 2, 3});
    run.check();
    checkSizes(ranks);
    checkWindows(ranks);
    checkManyAtOnce(ranks, 5);
  }
}

TEST_CASE("spared tree: whenever the tree dies, all ranks go on or none does") {
  int survived = 0;
  const int seeds = environmentValue("WEFT_TEST_FULL") ? 1000 : 30;
  for (int seed = 1; seed <= seeds; seed++) survived += survives(static_cast<uint64_t>(seed)) ? 1 : 0;
  std::printf("%d of %d went on\n", survived, seeds);
  CHECK(survived > 0);
}

TEST_CASE("spared tree: a result over what was sent cannot begin again") {
  TreeOfDaemons tree(0);
  Ranks ranks(kRanks);
  ranks.form(tree.sparedMaker());
  Run run(ranks, allReduce(100'000), 1);
  run.reduceInPlace(1);
  stepAll(run, 1000, {0, 1, 3});
  tree.root().kill();
  finish(run, {0, 1, 2, 3});
  for (int rank = 0; rank < kRanks; rank++) {
    INFO(run.failure(rank).value_or(""));
    CHECK(says(run, rank, "a rank no longer holds what it sent"));
    CHECK(says(run, rank, "the aggregation daemon"));
  }
}

TEST_CASE("spared tree: a rank that goes with the tree is named") {
  TreeOfDaemons tree(0);
  Ranks ranks(kRanks);
  ranks.form(tree.sparedMaker());
  Run run(ranks, allReduce(100'000), 1);
  stepAll(run, 1000, {0, 1, 3});
  tree.root().kill();
  run.leave(2);
  finish(run, {0, 1, 3});
  for (const int rank : {0, 1, 3}) {
    INFO(run.failure(rank).value_or(""));
    CHECK(says(run, rank, "rank 2"));
  }
}

TEST_CASE("spared tree: what a rank does wrong is no failure of the tree") {
  TreeOfDaemons tree(0);
  Ranks ranks(kRanks);
  ranks.form(tree.sparedMaker());
  Run run(ranks, allReduce(6000), 1);
  run.change(1, allReduce(3000));
  finish(run, {0, 1, 2, 3});
  for (int rank = 0; rank < kRanks; rank++) CHECK(says(run, rank, "rank 1 started operation 0"));
}

TEST_CASE("spared tree: memory is registered though the daemon is gone, and the ranks go on") {
  TreeOfDaemons tree(0);
  Ranks ranks(kRanks);
  ranks.form(tree.sparedMaker());
  Run before(ranks, allReduce(1000), 1);
  finish(before, {0, 1, 2, 3});  // so the daemon's data thread has the group, which kill() ends
  tree.root().kill();
  // The network notices by and by that the connection ended; whenever that is, registering works.
  for (int pass = 0; pass < 50; pass++) {
    const Vectors data(ranks.group(0), 10'000, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  Run run(ranks, allReduce(100'000), 2);
  finish(run, {0, 1, 2, 3});
  run.check();
}

TEST_CASE("spared tree: a lost tree that takes a second to close holds up no data call") {
  TreeOfDaemons tree(0);
  Ranks ranks(kRanks);
  std::vector<Fd> held;  // the daemon's ends of the ranks' links, at which nobody ever answers
  std::mutex mutex;
  ranks.form(tree.sparedMaker([&](Membership& membership) {
    const std::lock_guard lock(mutex);
    int ends[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    held.emplace_back(::dup(membership.link.get()));
    membership.link = Fd(ends[0]);
    held.emplace_back(ends[1]);
  }));
  Run run(ranks, allReduce(100'000), 1);
  stepAll(run, 500, {0, 1, 3});
  tree.root().kill();
  auto longest = std::chrono::steady_clock::duration::zero();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  for (size_t left = 1; left > 0;) {
    left = 0;
    for (const int rank : {0, 1, 2, 3}) {
      const auto before = std::chrono::steady_clock::now();
      left += run.step(rank) ? 0 : 1;
      longest = std::max(longest, std::chrono::steady_clock::now() - before);
    }
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
  run.check();
  CHECK(longest < std::chrono::milliseconds(700) * patience());
}
