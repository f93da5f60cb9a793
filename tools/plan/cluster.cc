// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/cluster.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "src/base/nearest.h"
#include "src/tuner/platforms.h"
#include "src/tuner/table_file.h"
#include "tools/plan/fields.h"

namespace weft::plan {

namespace {

#include "tools/plan/known_clusters.inc"  // kP5ClusterText, made by the build of the example

constexpr double kKib = 1024;
// A node of the machines that the tuner knows, and of a table that says nothing of it.
constexpr double kPlatformGpus = 8;
constexpr double kTableGpus = 8;
// NVLink of Hopper by a ring; docs/scale.md has the measurement.
constexpr double kHopperInsideGBps = 365;
constexpr double kHopperInsideUs = 3.4;

Status readTableInto(const JsonNode& network, Network* out) {
  if (!network.has("table")) return {};
  TRY(const JsonNode field, network.member("table"));
  TRY(const std::string name, field.text());
  const std::filesystem::path beside = std::filesystem::path(network.file()).parent_path() / name;
  auto table = tuner::readTable(beside.string());
  if (!table) return field.complaint(table.error().message());
  out->alphaUs = table->stepUs;
  out->railGBps = table->deviceGBps;
  out->rails = table->devices;
  return {};
}

Status readLowLatency(const JsonNode& network, LowLatency* out) {
  if (!network.has("low_latency")) return {};
  TRY(const JsonNode low, network.member("low_latency"));
  TRY(low.allow({"source", "below_MiB", "alpha_us", "intra_alpha_us", "share"}));
  TRY(need(low, "alpha_us", {}, &out->alphaUs));
  TRY(need(low, "intra_alpha_us", {}, &out->insideUs));
  TRY(take(low, "share", {0, 1, false}, &out->share));
  TRY(low.member("below_MiB"));
  return takeScaled(low, "below_MiB", kPositive, kKib * kKib, &out->belowBytes);
}

Status readNetwork(const JsonNode& cluster, Network* out) {
  TRY(const JsonNode network, cluster.member("network"));
  TRY(network.allow({"source", "table", "alpha_us", "plugin_us", "gap_us", "rail_GBps", "rails",
                     "rails_per_node", "rails_lost", "chunk_KiB", "eager_KiB", "clear_us", "low_latency"}));
  TRY(takeText(network, "source", &out->source));
  TRY(readTableInto(network, out));
  TRY(take(network, "alpha_us", {}, &out->alphaUs));
  TRY(take(network, "gap_us", {}, &out->gapUs));
  TRY(take(network, "rail_GBps", kPositive, &out->railGBps));
  TRY(take(network, "rails", kCount, &out->rails));  // its name before it told of what
  TRY(take(network, "rails_per_node", kCount, &out->rails));
  TRY(take(network, "plugin_us", {}, &out->pluginUs));
  TRY(take(network, "rails_lost", {0, out->rails - 1}, &out->railsLost));
  TRY(takeScaled(network, "chunk_KiB", kPositive, kKib, &out->chunkBytes));
  TRY(takeScaled(network, "eager_KiB", {}, kKib, &out->eagerBytes));
  TRY(take(network, "clear_us", {}, &out->clearUs));
  TRY(readLowLatency(network, &out->low));
  if (out->railGBps > 0) return {};
  TRY(network.member("rail_GBps"));
  return {};
}

Status readInside(const JsonNode& cluster, double gpusPerNode, Inside* out) {
  if (!cluster.has("intra") && gpusPerNode <= 1) return {};
  TRY(const JsonNode inside, cluster.member("intra"));
  TRY(inside.allow({"source", "alpha_us", "GBps", "switch_GBps"}));
  TRY(take(inside, "alpha_us", {}, &out->alphaUs));
  TRY(take(inside, "switch_GBps", kPositive, &out->switchGBps));
  return need(inside, "GBps", kPositive, &out->GBps);
}

Status readCollnet(const JsonNode& cluster, Collnet* out) {
  if (!cluster.has("collnet")) return {};
  TRY(const JsonNode collnet, cluster.member("collnet"));
  TRY(collnet.allow({"source", "fan_in", "hop_us", "up_GBps"}));
  TRY(need(collnet, "fan_in", {2, 1e6}, &out->fanIn));
  TRY(need(collnet, "hop_us", {}, &out->hopUs));
  return take(collnet, "up_GBps", kPositive, &out->upGBps);
}

Status readOutage(const JsonNode& cluster, Outage* out) {
  if (!cluster.has("outage")) return {};
  TRY(const JsonNode outage, cluster.member("outage"));
  TRY(outage.allow({"source", "detect_ms", "outstanding_MiB", "repair_s"}));
  TRY(takeScaled(outage, "detect_ms", {}, 1e3, &out->detectUs));
  TRY(takeScaled(outage, "outstanding_MiB", {}, kKib * kKib, &out->outstandingBytes));
  return take(outage, "repair_s", {}, &out->repairSeconds);
}

Cluster clusterOf(const tuner::Platform& platform, const std::string& machine) {
  Cluster cluster;
  cluster.name = machine;
  cluster.source = platform.hopUs[indexOf(tuner::Protocol::simple)].source + "; " + platform.nodeGBps.source;
  cluster.gpusPerNode = kPlatformGpus;
  cluster.network.alphaUs = platform.hopUs[indexOf(tuner::Protocol::simple)].value;
  cluster.network.rails = kPlatformGpus;
  cluster.network.railGBps = platform.nodeGBps.value / kPlatformGpus;
  cluster.inside = {kHopperInsideUs, kHopperInsideGBps, 0};
  return cluster;
}

// The machine that is an example in share/weft/plan, whose numbers stand there and nowhere else.
bool isP5(const std::string& machine) {
  return machine == "p5.48xlarge" || machine == "p5e.48xlarge";  // the same cards
}

Result<Cluster> p5Cluster(const std::string& machine) {
  TRY(Cluster cluster, parseCluster("p5.cluster.json", kP5ClusterText));
  cluster.name = machine;
  return cluster;
}

// A table says what the plugin and the wire take. The rest of a step is NCCL's and the GPU's, and known of a
// machine alone.
Result<Cluster> ofMachine(const tuner::MeasuredTable& table) {
  TRY(Cluster cluster, p5Cluster(table.machine));
  Network& network = cluster.network;
  const double more = table.stepUs - network.pluginUs;
  network.pluginUs = table.stepUs;
  network.alphaUs = std::max(table.stepUs, network.alphaUs + more);
  if (network.low.belowBytes > 0) network.low.alphaUs = std::max(table.stepUs, network.low.alphaUs + more);
  return cluster;
}

Result<Cluster> clusterOf(const tuner::MeasuredTable& table, const std::string& file) {
  Cluster cluster;
  if (isP5(table.machine)) {
    TRY(cluster, ofMachine(table));
  }
  cluster.name = table.provider;
  cluster.source =
      fmt::format("{}: measured {}, {} hosts, {} ranks", file, table.date, table.hosts, table.ranks);
  if (!isP5(table.machine)) {
    cluster.network.alphaUs = table.stepUs;
    cluster.inside = {kHopperInsideUs, kHopperInsideGBps, 0};
  }
  cluster.gpusPerNode = table.gpus > 0 ? table.gpus : kTableGpus;
  cluster.network.rails = table.devices;
  cluster.network.railGBps = table.deviceGBps;
  return cluster;
}

}  // namespace

double Cluster::nodesOf(double gpus) const {
  return std::ceil(gpus / gpusPerNode - 1e-9);
}

Cluster Cluster::withLowLatency() const {
  Cluster made = *this;
  made.network.alphaUs = network.low.alphaUs;
  made.network.railGBps *= network.low.share;
  made.inside.alphaUs = network.low.insideUs;
  return made;
}

Result<Cluster> parseCluster(const std::string& file, const std::string& text) {
  TRY(const JsonNode top, JsonNode::parse(file, text));
  TRY(top.allow({"name", "source", "nodes", "gpus_per_node", "network", "intra", "collnet", "outage", "kappa",
                 "sigma"}));
  Cluster cluster;
  cluster.name = std::filesystem::path(file).stem().string();
  TRY(takeText(top, "name", &cluster.name));
  TRY(takeText(top, "source", &cluster.source));
  TRY(take(top, "nodes", kCount, &cluster.nodes));
  TRY(need(top, "gpus_per_node", kCount, &cluster.gpusPerNode));
  TRY(readNetwork(top, &cluster.network));
  TRY(readInside(top, cluster.gpusPerNode, &cluster.inside));
  TRY(readCollnet(top, &cluster.collnet));
  TRY(readOutage(top, &cluster.outage));
  TRY(take(top, "kappa", {0, 10}, &cluster.kappa));
  TRY(take(top, "sigma", kShare, &cluster.sigma));
  return cluster;
}

Result<Cluster> readCluster(const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored)) {
    if (isP5(name)) return p5Cluster(name);
    if (const auto platform = tuner::findPlatform(name, "ofi:efa")) return clusterOf(*platform, name);
    const std::vector<std::string> known = tuner::knownMachines();
    std::string all;
    for (const std::string& machine : known) all += (all.empty() ? "" : ", ") + machine;
    return Error(
        Code::config, "reading a cluster",
        name + ": is neither a file nor a platform" + nearestHint(name, known) + "; platforms are " + all);
  }
  TRY(const std::string text, fileText(name));
  if (!text.starts_with("weft-tuner-table")) return parseCluster(name, text);
  auto table = tuner::parseTable(text);
  if (!table) return Error(Code::config, "reading a cluster", name + ": " + table.error().detail());
  return clusterOf(*table, name);
}

}  // namespace weft::plan
