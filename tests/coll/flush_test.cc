// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

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

// Steps rank 0 until it has noticed that the daemon is gone, so that it asks the others whether to go on.
void noticeLoss(Run& run, Group& group) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  while (group.error().message().find("the aggregation daemon") == std::string::npos) {
    run.step(0);
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
}

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

// Ranks of a tree with themselves as the spare. Each has a result in memory of a GPU.
struct Spared {
  Spared() : tree(0), ranks(kRanks, flushing()) {
    ranks.form(tree.sparedMaker());
    Run before(ranks, allReduce(1000), 1);
    finish(before, {0, 1, 2});  // so the daemon's data thread has the group, which kill() ends
    for (int rank = 0; rank < kRanks; rank++)
      memory.push_back(std::make_unique<GpuMemory>(ranks.group(rank), kBytes));
  }
  ~Spared() { memory.clear(); }
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;
  Started flush(int rank, size_t offset = 0) {
    const GpuMemory& into = *memory[static_cast<size_t>(rank)];
    return ranks.group(rank).flush(into.data() + offset, 8, into.handle());
  }
  std::string error(int rank) { return ranks.group(rank).error().message(); }

  TreeOfDaemons tree;
  Ranks ranks;
  std::vector<std::unique_ptr<GpuMemory>> memory;
};

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

TEST_CASE("spared tree: a flush in health is done") {
  Spared spared;
  const Started flushing = spared.flush(1);
  REQUIRE(flushing.ok);
  REQUIRE(flushing.request);
  CHECK(outcome(spared.ranks.group(1), flushing.request) == "done");
}

TEST_CASE("spared tree: flushes after the daemon was lost are errors as soon as that is noticed") {
  Spared spared;
  spared.tree.root().kill();
  Run run(spared.ranks, allReduce(kBytes), 1);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  // As long as the connection stands as far as this rank can see, it flushes: it wrote the data.
  Started flushing = spared.flush(0);
  while (flushing.ok) {
    REQUIRE(flushing.request);
    if (outcome(spared.ranks.group(0), flushing.request) != "done") break;
    REQUIRE(std::chrono::steady_clock::now() < limit);
    run.step(0);
    flushing = spared.flush(0);
  }
  CHECK(says(spared.error(0), "the aggregation daemon"));
}

TEST_CASE("spared tree: a flush that the daemon's loss took along is never done") {
  Spared spared;
  const Started flushing = spared.flush(0);
  REQUIRE(flushing.request);
  Run run(spared.ranks, allReduce(kBytes), 1);
  for (int pass = 0; pass < 500; pass++) run.step(0);
  spared.tree.root().kill();
  noticeLoss(run, spared.ranks.group(0));
  const std::string came = outcome(spared.ranks.group(0), flushing.request);
  INFO(came);
  CHECK(says(came, "the aggregation daemon"));
}

TEST_CASE("spared tree: a flush while the ranks agree is an error, and one of host memory is done") {
  for (const bool host : {false, true}) {
    Spared spared;
    Run run(spared.ranks, allReduce(kBytes), 1);
    for (int pass = 0; pass < 500; pass++) run.step(0);
    spared.tree.root().kill();
    noticeLoss(run, spared.ranks.group(0));
    REQUIRE_FALSE(run.failure(0));  // the others have not been asked: it waits for them
    if (host) {
      const Started flushing = run.flush(0);
      REQUIRE(flushing.request);
      CHECK(outcome(spared.ranks.group(0), flushing.request) == "done");
      continue;
    }
    const Started flushing = spared.flush(0);
    CHECK_FALSE(flushing.ok);
    CHECK_FALSE(flushing.request);
    CHECK(says(spared.error(0), "GPU's memory"));
  }
}

TEST_CASE("spared tree: a flush on the spare is an error, and one of host memory is done") {
  Spared spared;
  Run run(spared.ranks, allReduce(kBytes), 1);
  for (int pass = 0; pass < 500; pass++) run.step(0);
  spared.tree.root().kill();
  finish(run, {0, 1, 2});
  run.check();
  const Started host = run.flush(0);
  REQUIRE(host.request);
  CHECK(outcome(spared.ranks.group(0), host.request) == "done");
  const Started gpu = spared.flush(0);
  CHECK_FALSE(gpu.ok);
  CHECK_FALSE(gpu.request);
  CHECK(says(spared.error(0), "GPU's memory"));
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
  TreeOfDaemons tree(0);
  Ranks ranks(2, flushing());
  ranks.form(tree.maker(), false);
  const GpuMemory into(ranks.group(0), 64);
  fillPlaces(ranks, [&] { return ranks.group(0).flush(into.data(), 64, into.handle()); });
}

TEST_CASE("spared tree: a flush has its own place beside 64 operations, and one too many is an error") {
  TreeOfDaemons tree(0);
  Ranks ranks(2, flushing());
  ranks.form(tree.sparedMaker());
  const GpuMemory into(ranks.group(0), 64);
  fillPlaces(ranks, [&] { return ranks.group(0).flush(into.data(), 64, into.handle()); });
}

TEST_CASE("tree: a rank that flushes and one that does not stay in step") {
  TreeOfDaemons tree(0);
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

TEST_CASE("tree: a flush after the daemon was lost is never done") {
  TreeOfDaemons tree(0);
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
