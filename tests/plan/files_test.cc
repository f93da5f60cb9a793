// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <unistd.h>

#include "tests/plan/examples.h"
#include "tests/support/catch.h"
#include "tools/plan/fit.h"

// Files that do not fit: one line that names the file and the field.
namespace weft::plan {

namespace {

std::string jobFailure(const std::string& text) {
  const auto job = parseJob("j.json", text);
  return job ? "none" : job.error().detail();
}

std::string clusterFailure(const std::string& text) {
  const auto cluster = parseCluster("c.json", text);
  return cluster ? "none" : cluster.error().detail();
}

// The cluster of a table that says so; the file is gone again.
Result<Cluster> clusterOfTable(const std::string& lines) {
  const std::string path = "/tmp/weft-plan-table-" + std::to_string(getpid());
  std::ofstream(path) << "weft-tuner-table 2\nprovider p\ndate d\nhosts 2\nranks 2\n" << lines;
  auto cluster = readCluster(path);
  std::remove(path.c_str());
  return cluster;
}

const std::string kTimes = R"("forward_ms": 1, "backward_ms": 2)";
const std::string kBucket = R"("buckets": [{"MB": 1}])";

}  // namespace

TEST_CASE("a job that does not fit is one line with the file and the field") {
  const std::pair<std::string, const char*> cases[] = {
      {"{", "j.json: is no JSON at byte 2"},
      {"[]", "j.json: must be an object with fields"},
      {"{" + kTimes + "}", "j.json: buckets: is missing"},
      {"{" + kBucket + "}", "j.json: forward_ms: is missing"},
      {R"({"forward_ms": -1, "backward_ms": 2})",
       "j.json: forward_ms: -1 is not possible; it must be at least 0"},
      {R"({"forward_ms": 1, "backward_ms": 0})",
       "j.json: backward_ms: 0 is not possible; it must be above 0"},
      {R"({"forward_ms": "1", "backward_ms": 0})", "j.json: forward_ms: must be a number"},
      {"{" + kTimes + R"(, "buckets": []})", "j.json: buckets: must be a list of 1 to 100000 buckets"},
      {"{" + kTimes + R"(, "buckets": [{"MB": 1}, {}]})", "j.json: buckets[1].MB: is missing"},
      {"{" + kTimes + R"(, "buckets": [{"MB": 1, "ready": 0.5}, {"MB": 1, "ready": 0.4}]})",
       "j.json: buckets[1]: is ready before the bucket above it; buckets stand in the order in which they "
       "are ready"},
      {"{" + kTimes + R"(, "buckets": [{"MB": 1, "ready": 1.5}]})",
       "j.json: buckets[0].ready: 1.5 is not possible; it must be at least 0 and at most 1"},
      {"{" + kTimes + "," + kBucket + R"(, "bucket": 1})",
       "j.json: bucket: is no field here; the nearest is buckets"},
      {"{" + kTimes + "," + kBucket + R"(, "algorithm": "rng"})",
       "j.json: algorithm: 'rng' is no algorithm; the nearest is ring"},
      {"{" + kTimes + "," + kBucket + R"(, "overlap": 0.5})",
       R"(j.json: overlap: must be "buckets", "none" or {"window_ms": N})"},
      {"{" + kTimes + "," + kBucket + R"(, "measured": {"points": [{"gpus": 2}]}})",
       "j.json: measured.points[0].throughput: is missing"},
      {R"({"operation": {"name": "all_gahter", "MiB": [1]}})",
       "j.json: operation.name: must be all_reduce, all_gather, reduce_scatter or alltoall"},
  };
  for (const auto& [text, message] : cases) {
    INFO(text);
    CHECK(jobFailure(text) == message);
    CHECK(std::strchr(message, '\n') == nullptr);
  }
  CHECK(jobFailure("{" + kTimes + "," + kBucket + "}") == "none");
}

TEST_CASE("a cluster that does not fit is one line with the file and the field") {
  const std::pair<std::string, const char*> cases[] = {
      {R"({"gpus_per_node": 1})", "c.json: network: is missing"},
      {R"({"gpus_per_node": 1, "network": {"alpha_us": 1}})", "c.json: network.rail_GBps: is missing"},
      {R"({"gpus_per_node": 8, "network": {"rail_GBps": 1}})", "c.json: intra: is missing"},
      {R"({"gpus_per_node": 1, "network": {"rail_GBps": 1, "rails": 2, "rails_lost": 2}})",
       "c.json: network.rails_lost: 2 is not possible; it must be at least 0 and at most 1"},
      {R"({"gpus_per_node": 1, "network": {"rail_GBps": 1}, "collnet": {"fan_in": 1, "hop_us": 2}})",
       "c.json: collnet.fan_in: 1 is not possible; it must be at least 2 and at most 1e+06"},
      {R"({"gpus_per_node": 1, "network": {"rail_Gbps": 1}})",
       "c.json: network.rail_Gbps: is no field here; the nearest is rail_GBps"},
      {R"({"gpus_per_node": 1, "network": {"rail_GBps": 1, "low_latency": {"alpha_us": 1, "intra_alpha_us": 1}}})",
       "c.json: network.low_latency.below_MiB: is missing"},
  };
  for (const auto& [text, message] : cases) {
    INFO(text);
    CHECK(clusterFailure(text) == message);
  }
}

TEST_CASE("a table that a cluster names and that is not there is an error of the field") {
  const std::string failure = clusterFailure(R"({"gpus_per_node": 1, "network": {"table": "none.txt"}})");
  CHECK(failure.starts_with("c.json: network.table: "));
}

TEST_CASE("a cluster is a platform that the tuner knows, or an error with their names") {
  const auto p5en = readCluster("p5en.48xlarge");
  REQUIRE(p5en);
  CHECK(p5en->network.nodeGBps() == Approx(400));
  const auto unknown = readCluster("p6.48xlarge");
  REQUIRE(!unknown);
  CHECK(unknown.error().detail().starts_with(
      "p6.48xlarge: is neither a file nor a platform; the nearest is p5"));
}

TEST_CASE("a machine that is an example has the numbers of that example and no others") {
  const auto named = readCluster("p5.48xlarge");
  const auto file = readCluster(exampleFile("p5.cluster"));
  REQUIRE(named);
  REQUIRE(file);
  CHECK(named->name == "p5.48xlarge");
  CHECK(named->network.alphaUs == file->network.alphaUs);
  CHECK(named->network.nodeGBps() == file->network.nodeGBps());
  CHECK(named->network.low.alphaUs == file->network.low.alphaUs);
  CHECK(named->inside.switchGBps == file->inside.switchGBps);
  CHECK(file->network.pluginUs > 0);
}

TEST_CASE("the rails of a cluster and the devices of a table are those of a node") {
  const auto cluster =
      parseCluster("c.json", R"({"gpus_per_node": 1, "network": {"rail_GBps": 2, "rails_per_node": 4}})");
  REQUIRE(cluster);
  CHECK(cluster->network.nodeGBps() == 8);
  const auto before =
      parseCluster("c.json", R"({"gpus_per_node": 1, "network": {"rail_GBps": 2, "rails": 4}})");
  REQUIRE(before);
  CHECK(before->network.nodeGBps() == 8);
  const auto table = clusterOfTable("step_us 30\ndevice_GBps 12\ndevices_per_node 32\ngpus_per_node 4\n");
  REQUIRE(table);
  CHECK(table->gpusPerNode == 4);
  CHECK(table->network.nodeGBps() == 32 * 12);
  CHECK(table->network.alphaUs == 30);
}

TEST_CASE("a table of a machine that is known has its own part of a step, and the machine's of the rest") {
  const auto file = readCluster(exampleFile("p5.cluster"));
  REQUIRE(file);
  const auto table = clusterOfTable(
      "step_us 33\ndevice_GBps 12\ndevices_per_node 32\ngpus_per_node 8\nmachine p5.48xlarge\n");
  REQUIRE(table);
  const double more = 33 - file->network.pluginUs;
  CHECK(table->network.alphaUs == Approx(file->network.alphaUs + more));
  CHECK(table->network.low.alphaUs == Approx(file->network.low.alphaUs + more));
  CHECK(table->inside.switchGBps == file->inside.switchGBps);
}

TEST_CASE("a fit names the field where its numbers are unknown or its points too few") {
  const std::string begin =
      "{" + kTimes + "," + kBucket +
      R"(, "name": "j", "measured": {"points": [{"gpus": 2, "throughput": 1}], "free": [)";
  const auto cluster = parseCluster("c.json", R"({"gpus_per_node": 1, "network": {"rail_GBps": 1}})");
  REQUIRE(cluster);
  const auto failure = [&](const std::string& names) {
    auto job = parseJob("j.json", begin + names + "]}}");
    REQUIRE(job);
    const auto made = fitted(scenarioOf(job.take(), *cluster), 128, Draws{});
    return made ? "none" : made.error().detail();
  };
  CHECK(failure(R"("rail_Gps")") ==
        "j: measured.free: 'rail_Gps' is no number of a job or a cluster; the nearest is rail_GBps");
  CHECK(failure("") == "j: measured.free: must name one, two or three numbers");
  CHECK(failure(R"("rail_GBps")") == "j: measured.points: 1 below 128 GPUs are too few for 1 free numbers");
}

}  // namespace weft::plan
