// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <string>

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
  const auto p5 = readCluster("p5.48xlarge");
  REQUIRE(p5);
  CHECK(p5->network.nodeGBps() == Approx(332));
  const auto unknown = readCluster("p6.48xlarge");
  REQUIRE(!unknown);
  CHECK(unknown.error().detail().starts_with(
      "p6.48xlarge: is neither a file nor a platform; the nearest is p5"));
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
