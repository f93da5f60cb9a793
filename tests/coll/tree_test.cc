// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <chrono>
#include <thread>

#include "tests/coll/scenarios.h"
#include "tests/coll/tree_of_daemons.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// Ranks, and the daemons that reduce for them, over the loop provider.
using namespace weft;
using namespace weft::coll;
using namespace weft::test;

namespace {

void checkEverything(Ranks& ranks) {
  checkSizes(ranks);
  checkWindows(ranks);
  checkManyAtOnce(ranks, 5);
}

// Waits for something that other threads do.
template <class Condition>
bool soon(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5 * patience());
  while (!condition() && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

}  // namespace

TEST_CASE("tree: one daemon reduces for its ranks") {
  for (const int count : {1, 2, 5}) {
    INFO(count << " ranks");
    TreeOfDaemons tree;
    Ranks ranks(count);
    ranks.form(tree.maker(), false);
    checkEverything(ranks);
  }
}

TEST_CASE("tree: every type and operation") {
  TreeOfDaemons tree;
  Ranks ranks(4);
  ranks.form(tree.maker(), false);
  checkTypes(ranks);
}

TEST_CASE("tree: a rank sends its vector once") {
  TreeOfDaemons tree;
  Ranks ranks(4);
  ranks.form(tree.maker(), false);
  Run run(ranks, allReduce(1 << 20), 1);
  SeededRandom random(1);
  run.finish(random);
  run.check();
  for (int rank = 0; rank < 4; rank++) CHECK(ranks.group(rank).counters().bytesSent == 1 << 20);
}

TEST_CASE("tree: bits do not depend on who comes first") {
  TreeOfDaemons tree;
  Ranks ranks(5);
  ranks.form(tree.maker(), false);
  std::vector<std::byte> first;
  for (uint64_t round = 0; round < 20; round++) {
    Run run(ranks, allReduce(40000, ElementType::f16), 77);
    SeededRandom random(round);
    run.finish(random);
    for (int rank = 0; rank < ranks.count(); rank++) {
      if (first.empty()) first = run.result(rank);
      REQUIRE(run.result(rank) == first);
    }
  }
}

TEST_CASE("tree: a wrong secret is refused on both sides, and a quota says which") {
  agg::Limits limits;
  limits.groups = 1;
  TreeOfDaemons tree(limits);
  Ranks ranks(1);
  auto mesh = Mesh::open(ranks.meshOptions(0, false));
  REQUIRE(mesh);
  const auto wrong = tree.join(**mesh, "open barley, says the rank");
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().message().find("WEFT_AGGD_SECRET") != std::string::npos);
  const auto first = tree.join(**mesh);
  REQUIRE(first);
  Ranks others(1);
  auto second = Mesh::open(others.meshOptions(0, false));
  REQUIRE(second);
  const auto refused = tree.join(**second);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("--max-groups") != std::string::npos);
}

TEST_CASE("tree: a group that does not fit into the memory is refused") {
  agg::Limits limits;
  limits.bytes = 100000;
  TreeOfDaemons tree(limits);
  Ranks ranks(1);
  auto mesh = Mesh::open(ranks.meshOptions(0, false));
  REQUIRE(mesh);
  const auto refused = tree.join(**mesh);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("--max-bytes") != std::string::npos);
}

TEST_CASE("tree: ranks that disagree are all told who and about what") {
  TreeOfDaemons tree;
  Ranks ranks(3);
  ranks.form(tree.maker(), false);
  Run run(ranks, allReduce(6000), 1);
  run.change(1, allReduce(3000));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2 * patience());
  for (int left = 3; left > 0;) {
    left = 0;
    for (int rank = 0; rank < 3; rank++) left += run.step(rank) ? 0 : 1;
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
  for (int rank = 0; rank < 3; rank++) {
    CHECK(run.failure(rank).value_or("").find("rank 1 started operation 0, all_reduce of 3000 bytes") !=
          std::string::npos);
    CHECK(run.failure(rank) == run.failure(0));
  }
}

TEST_CASE("tree: a rank that goes is named to all others within a second") {
  TreeOfDaemons tree;
  Ranks ranks(4);
  ranks.form(tree.maker(), false);
  Run run(ranks, allReduce(100000), 1);
  for (int pass = 0; pass < 1000; pass++)
    for (const int rank : {0, 1, 3}) run.step(rank);
  run.leave(2);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(patience());
  for (const int rank : {0, 1, 3})
    while (!run.step(rank)) REQUIRE(std::chrono::steady_clock::now() < limit);
  for (const int rank : {0, 1, 3})
    CHECK(run.failure(rank).value_or("").find("rank 2 left the group") != std::string::npos);
}

TEST_CASE("tree: a daemon that dies is named to all ranks within a second") {
  TreeOfDaemons tree;
  Ranks ranks(4);
  ranks.form(tree.maker(), false);
  Run run(ranks, allReduce(100000), 1);
  for (int pass = 0; pass < 1000; pass++)
    for (const int rank : {0, 1, 3}) run.step(rank);
  tree.root().kill();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(patience());
  for (const int rank : {0, 1, 3})
    while (!run.step(rank)) REQUIRE(std::chrono::steady_clock::now() < limit);
  const std::string port = ":" + std::to_string(tree.root().port());
  for (const int rank : {0, 1, 3}) {
    INFO(run.failure(rank).value_or(""));
    CHECK(run.failure(rank).value_or("").find("the aggregation daemon") != std::string::npos);
    CHECK(run.failure(rank).value_or("").find(port + " is gone") != std::string::npos);
  }
}

TEST_CASE("tree: a group's memory is reserved with its first rank, and free again when it does not form") {
  agg::Limits limits;
  limits.patience = Milliseconds(1500);
  limits.bytes = agg::AggGroup::memoryBytes(2, kTestChunk, 16) * 3 / 2;
  TreeOfDaemons tree(limits);
  Ranks half(2), other(2);
  const auto open = [](Ranks& ranks, std::array<std::unique_ptr<Mesh>, 2>* meshes) {
    ranks.each([&](int rank) {
      if (auto mesh = Mesh::open(ranks.meshOptions(rank, false)))
        (*meshes)[static_cast<size_t>(rank)] = mesh.take();
    });
    REQUIRE(((*meshes)[0] && (*meshes)[1]));
  };
  std::array<std::unique_ptr<Mesh>, 2> waiting, refused;
  open(half, &waiting);
  open(other, &refused);
  std::string why;
  std::thread joining([&] {
    if (auto joined = tree.join(*waiting[0]); !joined) why = joined.error().message();
  });
  const auto reserved = [&] {
    return tree.root().status(agg::Daemon::Format::text).find(" 0 of ") == std::string::npos;
  };
  CHECK(soon(reserved));
  const auto second = tree.join(*refused[0]);
  CHECK_FALSE(second);
  if (!second) CHECK(second.error().message().find("--max-bytes") != std::string::npos);
  joining.join();
  CHECK(why.find("only 1 of 2 ranks joined") != std::string::npos);
  Ranks ranks(2);
  ranks.form(tree.maker(), false);
  checkSizes(ranks);
}

TEST_CASE("tree: a group of more ranks than the daemon takes is refused by name") {
  agg::Limits limits;
  limits.ranks = 1;
  TreeOfDaemons tree(limits);
  Ranks ranks(2);
  std::array<std::string, 2> why;
  ranks.each([&](int rank) {
    auto mesh = Mesh::open(ranks.meshOptions(rank, false));
    if (!mesh) return;
    if (auto joined = tree.join(**mesh); !joined) why[static_cast<size_t>(rank)] = joined.error().message();
  });
  for (const std::string& one : why) CHECK(one.find("--fan-in") != std::string::npos);
}

TEST_CASE("tree: a rank that leaves in silence ends the group when another one starts, or in time") {
  agg::Limits limits;
  limits.patience = Milliseconds(500);
  TreeOfDaemons tree(limits);
  Ranks ranks(3);
  ranks.form(tree.maker(), false);
  {
    Run run(ranks, allReduce(5000), 1);
    SeededRandom random(1);
    run.finish(random);
    run.check();
  }
  Run run(ranks, allReduce(5000), 2, 2);
  ranks.drop(2);
  const auto quiet = [&] {
    return tree.root().status(agg::Daemon::Format::text).find(": 0 groups") != std::string::npos;
  };
  // Expect: two ranks that never close keep nothing, and hear why.
  CHECK(soon(quiet));
  for (const int rank : {0, 1}) {
    while (!run.step(rank)) std::this_thread::yield();
    CHECK(run.failure(rank).value_or("").find("rank 2 left the group") != std::string::npos);
  }
}

TEST_CASE("tree: many groups share a daemon, and it is empty after them") {
  TreeOfDaemons tree;
  {
    std::vector<std::unique_ptr<Ranks>> jobs;
    for (int job = 0; job < 8; job++) {
      jobs.push_back(std::make_unique<Ranks>(2));
      jobs.back()->form(tree.maker(), false);
    }
    for (auto& job : jobs) checkManyAtOnce(*job, 1);
    CHECK(tree.root().status(agg::Daemon::Format::text).find("8 groups, 8 formed") != std::string::npos);
    CHECK(tree.root().status(agg::Daemon::Format::json).find("\"operations\":8") != std::string::npos);
    CHECK_FALSE(tree.root().drain());
  }
  CHECK(soon([&] { return tree.root().drain(); }));
  CHECK(tree.root().status(agg::Daemon::Format::prometheus).find("weft_aggd_groups 0") != std::string::npos);
  // Expect: it takes nobody any more.
  Ranks late(1);
  auto mesh = Mesh::open(late.meshOptions(0, false));
  REQUIRE(mesh);
  const auto refused = tree.join(**mesh);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("shut down") != std::string::npos);
}
