// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "src/topo/rail_groups.h"
#include "tools/doctor/checks.h"

// The network that NCCL would get and its way to the memory of each GPU, as `weft info` finds them, and
// which cards lie beside which GPUs.
namespace weft::doctor {

namespace {

constexpr const char* kGpu = "GPU";
constexpr int kSameNode = 10;  // the distance of a NUMA node to itself

int distanceOf(const World& world, int64_t from, int64_t to) {
  const auto each = words(world.line(fmt::format("/sys/devices/system/node/node{}/distance", from)));
  const auto index = static_cast<size_t>(to);
  return to >= 0 && index < each.size() ? std::atoi(each[index].c_str()) : 0;
}

// NUMA nodes of RDMA cards, or of all cards where there is no RDMA card.
std::vector<int64_t> nodesOfCards(const World& world) {
  std::vector<int64_t> nodes;
  for (const char* kind : {"/sys/class/infiniband", "/sys/class/net"}) {
    for (const std::string& name : world.names(kind)) {
      const std::string folder = world.resolved(fmt::format("{}/{}/device", kind, name));
      if (const auto node = world.number(folder + "/numa_node"); !folder.empty() && node)
        nodes.push_back(*node);
    }
    if (!nodes.empty()) return nodes;
  }
  return nodes;
}

}  // namespace

Findings cardsBesideGpus(const World& world) {
  constexpr const char* kWhat = "cards beside GPUs";
  const std::vector<std::string> gpus = topo::acceleratorPaths(world.path("/sys"));
  const std::vector<int64_t> cards = nodesOfCards(world);
  if (gpus.empty()) return {{Severity::fine, kGpu, kWhat, "no GPU here", {}}};
  if (cards.empty()) return {{Severity::fine, kGpu, kWhat, "no card on PCIe here", {}}};
  Findings found;
  for (const std::string& gpu : gpus) {
    const std::string below = gpu.substr(std::min(gpu.find("/sys/devices/"), gpu.size()));
    const int64_t node = world.number(below + "/numa_node").value_or(-1);
    const std::string name = "GPU " + gpu.substr(gpu.rfind('/') + 1);
    if (node < 0 || std::all_of(cards.begin(), cards.end(), [](int64_t one) { return one < 0; })) {
      found.push_back(
          {Severity::note, kGpu, name,
           "the machine does not show which NUMA node it is on, so NCCL may take a far card",
           byHand("weft info --topology NAME > /etc/nccl-topo.xml, and NCCL_TOPO_FILE=/etc/nccl-topo.xml")});
    } else if (std::find(cards.begin(), cards.end(), node) == cards.end()) {
      int nearest = 0;
      for (const int64_t card : cards)
        if (const int distance = distanceOf(world, node, card);
            distance > 0 && (nearest == 0 || distance < nearest))
          nearest = distance;
      found.push_back(
          {Severity::note, kGpu, name,
           fmt::format("no card on its NUMA node {}; the nearest is {} away (its own node: {})", node,
                       nearest > 0 ? fmt::format("{}", nearest) : "an unknown distance", kSameNode),
           byHand(
               "a rank on this GPU sends across the sockets: place ranks on GPUs that have a card first")});
    }
  }
  if (found.empty())
    found.push_back({Severity::fine, kGpu, kWhat, "each GPU has a card on its NUMA node", {}});
  return found;
}

Findings fabric(const info::Survey& survey) {
  constexpr const char* kFabric = "fabric";
  if (survey.taken.empty())
    return {{Severity::error, kFabric, "network", survey.failure,
             byHand("weft info lists each provider with its reason")}};
  Findings found = {
      {Severity::fine,
       kFabric,
       "network",
       fmt::format(
           "NCCL gets {} over {}",
           survey.properties.size() == 1 ? "1 device" : fmt::format("{} devices", survey.properties.size()),
           survey.taken),
       {}}};
  for (const info::ProviderSurvey& provider : survey.providers) {
    if (provider.spec == survey.takenSpec) break;  // those that follow are not better
    for (const Refusal& refusal : provider.refusals)
      if (refusal.failed)
        found.push_back(
            {Severity::warning, kFabric, provider.spec, fmt::format("{}: {}", refusal.what, refusal.why),
             byHand("docs/troubleshooting.md has a row for that reason; WEFT_FALLBACK=0 makes it an error")});
  }
  return found;
}

Findings gpuDirect(const info::Survey& survey) {
  constexpr const char* kWhat = "GPUDirect";
  if (survey.gpuDriver.empty())
    return {{Severity::note,
             kGpu,
             kWhat,
             survey.noGpuDriver.empty() ? "no driver was asked" : survey.noGpuDriver,
             {}}};
  Findings found;
  for (const mem::GdrVerdict& verdict : survey.gpuDirect) {
    const std::string pair = fmt::format("{} and GPU {}", verdict.device, verdict.gpu);
    if (verdict.path.works()) {
      found.push_back({verdict.slow.empty() ? Severity::fine : Severity::warning, kGpu, pair,
                       fmt::format("by {}{}{}", verdict.taken().name,
                                   verdict.slow.empty() ? "" : "; likely slow: ", verdict.slow),
                       verdict.slow.empty() ? Mend{} : byHand("docs/gpudirect.md, \"Slow\"")});
      continue;
    }
    std::string reasons;
    for (const mem::Rung& rung : verdict.rungs)
      if (!rung.works) reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", rung.name, rung.why);
    found.push_back({survey.gdrMode == "require" ? Severity::error : Severity::note, kGpu, pair,
                     fmt::format("off; {}", reasons.empty() ? verdict.path.why : reasons),
                     byHand("docs/gpudirect.md has a row for each reason; nvidia-peermem is the usual one: "
                            "modprobe nvidia-peermem")});
  }
  if (found.empty()) found.push_back({Severity::note, kGpu, kWhat, "no card that could take GPU memory", {}});
  return found;
}

}  // namespace weft::doctor
