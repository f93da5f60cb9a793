// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "src/coll/peers.h"
#include "src/coll/ring.h"
#include "tests/coll/gpu_memory.h"
#include "tests/coll/scenarios.h"
#include "tests/coll/tree_of_daemons.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// NCCL hands a result in GPU memory to the GPU as soon as a flush of it is done. So a flush is done only when
// it really was, in health and with each thing lost that it needs.
using namespace weft;
using namespace weft::coll;
using namespace weft::test;

namespace {

constexpr int kRanks = 3;
constexpr size_t kBytes = 100'000;

bool says(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

// Ranks that have a GPU whose memory must be flushed.
Config flushing() {
  Config config;
  config.libcuda = cudaStandIn();
  return config;
}

// Steps the ranks until each is done or has failed.
void finish(Run& run, std::initializer_list<int> ranks) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  for (size_t left = 1; left > 0;) {
    left = 0;
    for (const int rank : ranks) left += run.step(rank) ? 0 : 1;
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
}

// A rank of two flushes while as many operations as fit wait for the other rank: as many flushes as fit have
// a request each, and the next one is an error.
void fillPlaces(Ranks& ranks, const std::function<Started()>& flush) {
  Group& group = ranks.group(0);
  std::vector<std::unique_ptr<Run>> runs;
  for (uint64_t i = 0; i < 64; i++) runs.push_back(std::make_unique<Run>(ranks, allReduce(64), i));
  for (const auto& run : runs) {
    run->step(0);
    REQUIRE(run->started(0));
    REQUIRE_FALSE(run->failure(0));
  }
  for (int i = 0; i < 64; i++) {
    INFO("flush " << i);
    const Started flushing = flush();
    REQUIRE(flushing.ok);
    REQUIRE(flushing.request);
  }
  const Started more = flush();
  CHECK_FALSE(more.ok);
  CHECK_FALSE(more.request);
  CHECK(says(group.error().message(), "64 flushes are under way"));
  CHECK_FALSE(flush().ok);
}

// The outcome of a flush: "done", or the error that ends it.
std::string outcome(Group& group, GroupRequest* request) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  while (std::chrono::steady_clock::now() < limit) {
    const Finished finished = group.test(request);
    if (!finished.ok) return group.error().message();
    if (finished.done) return "done";
  }
  return "nothing";
}

}  // namespace

TEST_CASE("tree: a flush that the daemon's loss took along is never done") {
  TreeOfDaemons tree;
  Ranks ranks(kRanks, flushing());
  ranks.form(tree.maker(), false);
  const GpuMemory into(ranks.group(0), kBytes);
  const Started flushing = ranks.group(0).flush(into.data(), 8, into.handle());
  REQUIRE(flushing.request);
  Run run(ranks, allReduce(kBytes), 1);
  for (int pass = 0; pass < 500; pass++) run.step(0);
  tree.root().kill();
  finish(run, {0});
  REQUIRE(run.failure(0));
  const std::string came = outcome(ranks.group(0), flushing.request);
  INFO(came);
  CHECK(says(came, "the aggregation daemon"));
}

TEST_CASE("peers: a flush has its own place beside 64 operations, and one too many is an error") {
  Ranks ranks(2);
  ranks.form([](int, std::unique_ptr<Mesh> mesh) {
    const Mesh& all = *mesh;
    return ringOf(all, std::make_unique<PeersBackend>(std::move(mesh), PeersOptions()));
  });
  const Vectors data(ranks.group(0), 64, 1);
  fillPlaces(ranks, [&] { return ranks.group(0).flush(data.receive.data(), 64, data.receiveMemory); });
}

TEST_CASE("tree: a flush has its own place beside 64 operations, and one too many is an error") {
  TreeOfDaemons tree;
  Ranks ranks(2, flushing());
  ranks.form(tree.maker(), false);
  const GpuMemory into(ranks.group(0), 64);
  fillPlaces(ranks, [&] { return ranks.group(0).flush(into.data(), 64, into.handle()); });
}

TEST_CASE("tree: a rank that flushes and one that does not stay in step") {
  TreeOfDaemons tree;
  Ranks ranks(2, flushing());
  ranks.form(tree.maker(), false);
  const GpuMemory into(ranks.group(0), 64);
  const Started flushing = ranks.group(0).flush(into.data(), 64, into.handle());
  REQUIRE(flushing.request);
  CHECK(outcome(ranks.group(0), flushing.request) == "done");
  Run run(ranks, allReduce(kBytes), 1);
  finish(run, {0, 1});
  run.check();
}

// The ranks' GPUs differ, as where one host lacks the module for GPUDirect.
TEST_CASE("tree: a small vector in GPU memory of one rank and in host memory of the others") {
  TreeOfDaemons tree;
  Ranks ranks(2, flushing());
  ranks.form(tree.maker(), false);
  Run run(ranks, allReduce(64), 1);
  const GpuMemory into(ranks.group(0), 64);
  run.receiveInto(0, into.data(), into.handle());
  run.sendFrom(0, into.data(), into.handle());
  finish(run, {0, 1});
  for (const int rank : {0, 1}) {
    INFO(run.failure(rank).value_or(""));
    CHECK_FALSE(run.failure(rank));
  }
}

TEST_CASE("tree: a flush after the daemon was lost is never done") {
  TreeOfDaemons tree;
  Ranks ranks(2, flushing());
  ranks.form(tree.maker(), false);
  const GpuMemory into(ranks.group(0), 64);
  Run run(ranks, allReduce(kBytes), 1);
  for (int pass = 0; pass < 500; pass++) run.step(0);
  tree.root().kill();
  finish(run, {0});
  REQUIRE(run.failure(0));
  const Started flushing = ranks.group(0).flush(into.data(), 64, into.handle());
  CHECK_FALSE(flushing.ok);
  CHECK_FALSE(flushing.request);
}
