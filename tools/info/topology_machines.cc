// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include <fmt/format.h>

#include "src/base/nearest.h"
#include "tools/info/topology.h"

namespace weft::info {

namespace {

constexpr const char* kGpu = "0x030200";
constexpr const char* kInfiniBand = "0x020700";
constexpr const char* kEthernet = "0x020000";
constexpr const char* kBridge = "0x060400";

struct Device {
  const char* busId;
  const char* pciClass;
};
struct Group {
  int cpu;
  bool bridged;  // behind a PCI switch that the virtual machine does not show
  std::vector<Device> devices;
};
struct Machine {
  const char* name;
  const char* title;
  const char* source;
  const char* vendor;
  const char* family;
  const char* model;
  const char* speed;
  std::vector<const char*> affinities;  // by NUMA node
  std::vector<Group> groups;
};

constexpr const char* kAzure = "Azure/azhpc-images, topology/";
constexpr const char* kAws = "aws/aws-ofi-nccl, topology/";

// Addresses, processors and link speeds are facts of these machines, from what their makers publish.
// clang-format off
const std::vector<Machine>& machines() {
  static const std::vector<Machine> kMachines = {
      {"nc-a100-v4", "Azure NC A100 v4 (Standard_NC96ads_A100_v4)", "ncv4-topo.xml", "AuthenticAMD", "175", "1", "",
       {"00000000,00000000,00ffffff", "00000000,0000ffff,ff000000", "000000ff,ffff0000,00000000", "ffffff00,00000000,00000000"},
       {{0, false, {{"0001:00:00.0", kGpu}}}, {1, false, {{"0002:00:00.0", kGpu}}}, {2, false, {{"0003:00:00.0", kGpu}}},
        {3, false, {{"0004:00:00.0", kGpu}}}}},
      {"ndv2", "Azure NDv2 (Standard_ND40rs_v2)", "ndv2-topo.xml", "GenuineIntel", "6", "85", "16 GT/s",
       {"00000000,000fffff", "000000ff,fff00000"},
       {{0, false, {{"0001:00:00.0", kGpu}, {"0002:00:00.0", kGpu}, {"0003:00:00.0", kGpu}, {"0004:00:00.0", kGpu}, {"0101:00:00.0", kInfiniBand}}},
        {1, false, {{"0005:00:00.0", kGpu}, {"0006:00:00.0", kGpu}, {"0007:00:00.0", kGpu}, {"0008:00:00.0", kGpu}}}}},
      {"nd-a100-v4", "Azure ND A100 v4 (Standard_ND96asr_v4, Standard_ND96amsr_A100_v4)", "ndv4-topo.xml", "AuthenticAMD", "23", "49", "16 GT/s",
       {"00000000,00000000,00ffffff", "00000000,0000ffff,ff000000", "000000ff,ffff0000,00000000", "ffffff00,00000000,00000000"},
       {{0, true, {{"0003:00:00.0", kGpu}, {"0103:00:00.0", kInfiniBand}, {"0004:00:00.0", kGpu}, {"0104:00:00.0", kInfiniBand}}},
        {1, true, {{"0001:00:00.0", kGpu}, {"0101:00:00.0", kInfiniBand}, {"0002:00:00.0", kGpu}, {"0102:00:00.0", kInfiniBand}}},
        {2, true, {{"000d:00:00.0", kGpu}, {"0107:00:00.0", kInfiniBand}, {"000e:00:00.0", kGpu}, {"0108:00:00.0", kInfiniBand}}},
        {3, true, {{"000b:00:00.0", kGpu}, {"0105:00:00.0", kInfiniBand}, {"000c:00:00.0", kGpu}, {"0106:00:00.0", kInfiniBand}}}}},
      {"nd-h100-v5", "Azure ND H100 v5 (Standard_ND96isr_H100_v5)", "ndv5-topo.xml", "GenuineIntel", "6", "143", "32.0 GT/s PCIe",
       {"00000000,0000ffff,ffffffff", "ffffffff,ffff0000,00000000"},
       {{0, true, {{"0001:00:00.0", kGpu}, {"0101:00:00.0", kInfiniBand}}}, {0, true, {{"0002:00:00.0", kGpu}, {"0102:00:00.0", kInfiniBand}}},
        {0, true, {{"0003:00:00.0", kGpu}, {"0103:00:00.0", kInfiniBand}}}, {0, true, {{"0008:00:00.0", kGpu}, {"0104:00:00.0", kInfiniBand}}},
        {1, true, {{"0009:00:00.0", kGpu}, {"0105:00:00.0", kInfiniBand}}}, {1, true, {{"000a:00:00.0", kGpu}, {"0106:00:00.0", kInfiniBand}}},
        {1, true, {{"000b:00:00.0", kGpu}, {"0107:00:00.0", kInfiniBand}}}, {1, true, {{"000c:00:00.0", kGpu}, {"0108:00:00.0", kInfiniBand}}}}},
      {"p4d.24xlarge", "AWS p4d.24xlarge and p4de.24xlarge", "p4d-24xl-topo.xml", "GenuineIntel", "6", "85", "8 GT/s",
       {"000000ff,ffff0000,00ffffff", "ffffff00,0000ffff,ff000000"},
       {{0, true, {{"0000:10:1c.0", kGpu}, {"0000:10:1d.0", kGpu}, {"0000:10:1b.0", kEthernet}}},
        {0, true, {{"0000:20:1c.0", kGpu}, {"0000:20:1d.0", kGpu}, {"0000:20:1b.0", kEthernet}}},
        {1, true, {{"0000:90:1c.0", kGpu}, {"0000:90:1d.0", kGpu}, {"0000:90:1b.0", kEthernet}}},
        {1, true, {{"0000:a0:1c.0", kGpu}, {"0000:a0:1d.0", kGpu}, {"0000:a0:1b.0", kEthernet}}}}},
  };
  return kMachines;
}
// clang-format on

// Names of one and the same machine, or of one for which its maker publishes no file.
constexpr std::pair<const char*, const char*> kAliases[] = {{"p4de.24xlarge", "p4d.24xlarge"}};
constexpr const char* kShowTheirOwn[] = {"p3dn.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"};

PciNode nodeOf(const Machine& machine, const Device& device) {
  return {device.busId, device.pciClass, machine.speed, *machine.speed ? "16" : "", {}};
}

Topology build(const Machine& machine) {
  const bool azure = std::string_view(machine.title).substr(0, 5) == "Azure";
  Topology topology{machine.title, fmt::format("{}{}", azure ? kAzure : kAws, machine.source), {}};
  for (size_t numa = 0; numa < machine.affinities.size(); numa++)
    topology.cpus.push_back({static_cast<int>(numa),
                             machine.affinities[numa],
                             "x86_64",
                             machine.vendor,
                             machine.family,
                             machine.model,
                             {}});
  int bridges = 0;
  for (const Group& group : machine.groups) {
    std::vector<PciNode> nodes;
    for (const Device& device : group.devices) nodes.push_back(nodeOf(machine, device));
    auto& devices = topology.cpus[static_cast<size_t>(group.cpu)].devices;
    if (group.bridged) {
      devices.push_back(
          {fmt::format("ffff:ff:{:02x}.0", ++bridges), kBridge, machine.speed, "16", std::move(nodes)});
    } else {
      std::move(nodes.begin(), nodes.end(), std::back_inserter(devices));
    }
  }
  return topology;
}

}  // namespace

std::vector<std::string> knownTopologies() {
  std::vector<std::string> names;
  for (const Machine& machine : machines()) names.emplace_back(machine.name);
  for (const auto& [alias, name] : kAliases) names.emplace_back(alias);
  return names;
}

Result<Topology> knownTopology(const std::string& name) {
  const auto sameName = [&](const char* other) { return name == other; };
  if (std::any_of(std::begin(kShowTheirOwn), std::end(kShowTheirOwn), sameName))
    return Error(Code::unavailable, "--topology",
                 name + " needs no file: AWS publishes none, NCCL reads the machine itself");
  const auto alias = std::find_if(std::begin(kAliases), std::end(kAliases),
                                  [&](const auto& one) { return name == one.first; });
  const std::string wanted = alias == std::end(kAliases) ? name : alias->second;
  for (const Machine& machine : machines())
    if (wanted == machine.name) return build(machine);
  auto known = knownTopologies();
  known.emplace_back("this");
  return Error(
      Code::invalidArgument, "--topology",
      fmt::format("{} is not known; known are {}{}", name, fmt::join(known, ", "), nearestHint(name, known)));
}

}  // namespace weft::info
