// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cmath>

#include "tests/support/catch.h"
#include "tools/plan/gpu_counts.h"
#include "tools/plan/prediction.h"

// The equations by hand, and the laws that any of their results must keep.
namespace weft::plan {

namespace {

Cluster flatCluster() {
  Cluster cluster;
  cluster.gpusPerNode = 1;
  cluster.network.alphaUs = 10;
  cluster.network.railGBps = 10;
  return cluster;
}

Cluster nodesOfEight() {
  Cluster cluster = flatCluster();
  cluster.gpusPerNode = 8;
  cluster.network.rails = 4;
  cluster.inside = {2, 200, 0};
  return cluster;
}

// Two buckets of 10 MB; the first is ready in the middle of the backward pass.
Job twoBuckets() {
  Job job;
  job.forwardUs = 5000;
  job.backwardUs = 10000;
  job.buckets = {{10e6, 0.5}, {10e6, 1}};
  job.algorithm = Algorithm::ring;
  return job;
}

double usOfRing(double gpus, double bytes) {
  return costOf(flatCluster(), {Collective::allReduce, Algorithm::ring, gpus, bytes}).us();
}

}  // namespace

TEST_CASE("a ring's time is that of its formula") {
  // 2 x 3 steps of 10 us, and 2 x 3/4 x 10 MB at 10 GB/s.
  CHECK(usOfRing(4, 10e6) == Approx(60 + 1500));
  const Operation gather{Collective::allGather, Algorithm::ring, 4, 10e6};
  CHECK(costOf(flatCluster(), gather).us() == Approx(30 + 750));
  CHECK(busGBps(gather, 750) == Approx(10));
}

TEST_CASE("a single GPU has no communication") {
  CHECK(usOfRing(1, 10e6) == 0);
  const Prediction alone = predict({twoBuckets(), flatCluster()}, 1, Draws{});
  CHECK(alone.stepUs == Approx(15000));
  CHECK(alone.efficiency == Approx(1));
  CHECK(alone.limit == Limit::computing);
}

TEST_CASE("what a tree costs grows with the logarithm of the nodes, a ring's latency with their number") {
  const auto latency = [](Algorithm algorithm, double gpus) {
    return costOf(flatCluster(), {Collective::allReduce, algorithm, gpus, 8}).latencyUs;
  };
  CHECK(latency(Algorithm::ring, 1024) == Approx(2 * 1023 * 10));
  CHECK(latency(Algorithm::doubleTree, 1024) == Approx(2 * 10 * 10));
  CHECK(chosen(flatCluster(), {Collective::allReduce, Algorithm::best, 1024, 8}) == Algorithm::doubleTree);
}

TEST_CASE("no algorithm is faster than the bytes it must move, or faster with more of them") {
  for (const AlgorithmFacts& facts : algorithms()) {
    INFO(facts.name);
    double before = 0;
    for (const double bytes : {1e3, 1e5, 1e7, 1e9}) {
      const Cost cost = costOf(nodesOfEight(), {Collective::allReduce, facts.algorithm, 64, bytes});
      CHECK(cost.us() > before);
      // Any all-reduce sends each byte out of each node at least once but for 1/n.
      CHECK(cost.transferUs >= bytes / 40e3 * 7 / 8 * 0.999);
      before = cost.us();
    }
  }
}

TEST_CASE("a lost rail takes its share of the bandwidth, and no more") {
  Cluster cluster = nodesOfEight();
  const Operation operation{Collective::allReduce, Algorithm::ring, 64, 1e9};
  const double whole = costOf(cluster, operation).transferUs;
  cluster.network.railsLost = 1;
  CHECK(costOf(cluster, operation).transferUs == Approx(whole * 4 / 3));
}

TEST_CASE("an operation with a small part of each rank goes by the protocol with less latency") {
  Cluster cluster = flatCluster();
  cluster.network.low = {1e6, 3, 0, 0.5};
  const auto usOf = [&](double bytes) {
    return costOf(cluster, {Collective::allGather, Algorithm::ring, 4, bytes}).us();
  };
  CHECK(usOf(2e6) == Approx(3 * 3 + 2e6 * 3 / 4 / 5e3));  // a part of 0.5 MB
  CHECK(usOf(4e6) == Approx(3 * 10 + 4e6 * 3 / 4 / 10e3));
}

TEST_CASE("a double tree of two nodes sends each byte once, and of many almost twice") {
  const auto usOf = [](double nodes) {
    return costOf(flatCluster(), {Collective::allReduce, Algorithm::doubleTree, nodes, 1e9}).transferUs;
  };
  CHECK(usOf(2) == Approx(1e9 / 10e3));
  CHECK(usOf(128) == Approx(2e9 / 10e3 * 127 / 128).epsilon(0.01));
}

TEST_CASE("a switch that reduces takes the steps of a chain out of a tree") {
  Cluster cluster = nodesOfEight();
  const Operation operation{Collective::allReduce, Algorithm::doubleTree, 64, 8};
  const double chained = costOf(cluster, operation).latencyUs;
  cluster.inside.switchGBps = 480;
  CHECK(chained - costOf(cluster, operation).latencyUs == Approx(2 * 6 * 2));
}

TEST_CASE("collnet halves what a ring of nodes moves") {
  Cluster cluster = flatCluster();
  cluster.collnet = {16, 8, 0};
  const double offloaded = costOf(cluster, {Collective::allReduce, Algorithm::collnet, 128, 1e9}).us();
  CHECK(usOfRing(128, 1e9) / offloaded == Approx(2).epsilon(0.03));
}

TEST_CASE("the last bucket's time is never hidden, and an earlier one's is as far as there is time") {
  const double each = usOfRing(4, 10e6);  // 1560 us, less than the 5000 between the buckets
  const Step step = stepOf(twoBuckets(), flatCluster(), 4, 1);
  CHECK(step.exposedUs == Approx(each));
  CHECK(step.totalUs == Approx(15000 + each));
  CHECK(step.hiddenUs() == Approx(each));
  Job late = twoBuckets();
  late.buckets[0].ready = 1;
  CHECK(stepOf(late, flatCluster(), 4, 1).exposedUs == Approx(2 * each));
  late.overlap = Overlap::window;
  late.windowUs = 1000;
  CHECK(stepOf(late, flatCluster(), 4, 1).exposedUs == Approx(2 * each - 1000));
}

TEST_CASE("sharded parameters are gathered ahead, and the first gather is not hidden") {
  Job job;
  job.forwardUs = 100000;
  job.backwardUs = 200000;
  job.sharded = Sharding{40e6, 4, 2, 1};
  job.algorithm = Algorithm::ring;
  const double gather = costOf(flatCluster(), {Collective::allGather, Algorithm::ring, 4, 20e6}).us();
  const Step step = stepOf(job, flatCluster(), 4, 1);
  CHECK(step.communication.us() == Approx(12 * gather));
  // The gather before the forward pass, the first of the backward pass and the last scatter.
  CHECK(step.exposedUs == Approx(3 * gather));
}

TEST_CASE("skew is the expected maximum of the ranks' times, and the draws are the same each time") {
  Job job = twoBuckets();
  Cluster cluster = flatCluster();
  cluster.sigma = 0.01;
  cluster.network.alphaUs = 0.1;  // so that nothing but the last bucket is exposed
  const Draws draws{7, 20000};
  // The expected largest of n normal numbers, from tables of order statistics.
  const std::pair<double, double> expected[] = {{2, 0.5642}, {10, 1.5388}, {100, 2.5076}, {1000, 3.2414}};
  for (const auto& [gpus, deviations] : expected) {
    const Prediction made = predict({job, cluster}, gpus, draws);
    CHECK(made.skewUs == Approx(15000 * 0.01 * deviations).epsilon(0.03));
    CHECK(made.errorUs < 2);
    CHECK(made.lowUs < made.stepUs);
    CHECK(made.highUs > made.stepUs);
    CHECK(predict({job, cluster}, gpus, draws).stepUs == made.stepUs);
  }
}

TEST_CASE("sensitivity names the number that matters most, with its sign") {
  Scenario scenario{twoBuckets(), flatCluster()};
  scenario.job.overlap = Overlap::none;
  scenario.cluster.network.railGBps = 0.1;  // 150 ms each
  const std::vector<Effect> effects = sensitivity(scenario, 4, Draws{});
  REQUIRE(effects.size() >= 4);
  CHECK(std::string(effects[0].number->name) == "gradients_MB");
  CHECK(effects[0].stepChange > 0);
  CHECK(std::string(effects[1].number->name) == "rail_GBps");
  CHECK(effects[1].stepChange < 0);
  CHECK(predict(scenario, 4, Draws{}).limit == Limit::bandwidth);
}

TEST_CASE("counts of GPUs are ranges that double, and lists") {
  CHECK(*gpuCounts("2..16") == std::vector<double>{2, 4, 8, 16});
  CHECK(*gpuCounts("8..24,5") == std::vector<double>{5, 8, 16, 24});
  for (const char* const bad : {"", "0", "4..2", "a", "2..", "1e3", "-2", "2,,3", "10000001"})
    CHECK(!gpuCounts(bad));
}

}  // namespace weft::plan
