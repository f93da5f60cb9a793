// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/fabric.h"

#include <algorithm>
#include <filesystem>

#include "src/base/nearest.h"
#include "tools/plan/cluster.h"

namespace weft::sim {

namespace {

// The calls of a processor for a message at either end: half of aws-ofi-nccl's net_comp_overhead.
constexpr double kEfaMessageUs = 1.5;

// A rank is a GPU: four of a p5's 32 cards are its own. The numbers are those of share/weft/plan, which weft
// plan takes as well.
Fabric p5() {
  Fabric fabric;
  fabric.name = "p5";
  fabric.machine = "p5.48xlarge";
  fabric.driver = Driver::efa;
  const auto cluster = plan::readCluster(fabric.machine);
  if (!cluster) return fabric;  // its text is a part of the program: a test reads it
  const plan::Network& network = cluster->network;
  fabric.source = "p5.cluster.json: " + network.source;
  fabric.ranksPerNode = static_cast<int>(cluster->gpusPerNode);
  fabric.rails = static_cast<int>(network.rails / cluster->gpusPerNode);
  fabric.railGBps = network.railGBps;
  fabric.messageUs = kEfaMessageUs;
  fabric.latencyUs = network.pluginUs - 2 * kEfaMessageUs;
  return fabric;
}

Fabric infiniband() {
  Fabric fabric;
  fabric.name = "ndr";
  fabric.source =
      "InfiniBand NDR, 50 GB/s on the line, 98 % of it for data; 1.2 us for a put (UCX on mlx5); 1 us to "
      "post "
      "(NCCL 2.30.7 src/graph/tuning.cc, Intel)";
  fabric.railGBps = 49;
  fabric.latencyUs = 1.2;
  fabric.messageUs = 1;
  return fabric;
}

Fabric ethernet() {
  Fabric fabric;
  fabric.name = "ethernet-100g";
  fabric.source =
      "RoCE at 100 Gb/s, 12.5 GB/s on the line, 98 % of it for data; 1.2 us for a put and 0.2 us for "
      "Ethernet "
      "(UCX on mlx5); 1 us to post (NCCL 2.30.7 src/graph/tuning.cc, Intel)";
  fabric.railGBps = 12.25;
  fabric.latencyUs = 1.4;
  fabric.messageUs = 1;
  return fabric;
}

Driver driverOf(const std::string& provider) {
  if (provider == "tcp") return Driver::tcp;
  return provider.starts_with("ofi:efa") ? Driver::efa : Driver::verbs;
}

// A step is measured from call to call, so the processors' share is in it: a fifth at each end.
constexpr double kShareOfProcessor = 0.2;

// There is no card: a message is under way while a processor copies it. The rest of a step lies between
// the two ends' calls.
void onOneHost(const tuner::MeasuredTable& table, Fabric* fabric) {
  fabric->host = table.host;
  fabric->railGBps = table.host.far.sendGBps;
  fabric->messageUs = table.host.sendUs;
  fabric->latencyUs = std::max(0.0, table.host.stepUs - table.host.sendUs - table.host.receiveUs);
}

Fabric fabricOf(const tuner::MeasuredTable& table, const std::string& file) {
  Fabric fabric;
  fabric.name = std::filesystem::path(file).filename().string();
  fabric.source = file + ": measured " + table.date + " over " + table.provider;
  fabric.driver = driverOf(table.provider);
  fabric.machine = table.machine;
  fabric.ranksPerNode = table.gpus;
  fabric.rails = table.gpus > 0 ? std::max(1, table.devices / table.gpus) : table.devices;
  fabric.railGBps = table.deviceGBps;
  fabric.messageUs = table.stepUs * kShareOfProcessor;
  fabric.latencyUs = table.stepUs - 2 * fabric.messageUs;
  fabric.callUs = 0;
  if (table.host.processors > 0) onOneHost(table, &fabric);
  return fabric;
}

}  // namespace

int Fabric::speedMbps() const {
  return std::max(1, static_cast<int>(railGBps * 8000));
}

// As the providers say of themselves.
int Fabric::eagerBytes() const {
  return driver == Driver::tcp ? 32768 : 8192;
}

const std::vector<Fabric>& knownFabrics() {
  static const std::vector<Fabric> known = {p5(), infiniband(), ethernet()};
  return known;
}

Result<Fabric> readFabric(const std::string& name) {
  std::vector<std::string> names;
  std::string all;
  for (const Fabric& fabric : knownFabrics()) {
    if (fabric.name == name) return fabric;
    names.push_back(fabric.name);
    all += (all.empty() ? "" : ", ") + fabric.name;
  }
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored))
    return Error(Code::config, "reading a fabric",
                 "--fabric " + name + ": is neither a file nor a fabric" + nearestHint(name, names) +
                     "; fabrics are " + all);
  auto table = tuner::readTable(name);
  if (!table) return Error(Code::config, "reading a fabric", "--fabric " + table.error().detail());
  return fabricOf(*table, name);
}

}  // namespace weft::sim
