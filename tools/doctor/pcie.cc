// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "src/topo/rail_groups.h"
#include "tools/doctor/checks.h"

// The PCI Express path of cards and GPUs: links below what they can do, access control (ACS) that sends what
// one device writes to another through the root complex, the IOMMU, and the order of writes.
namespace weft::doctor {

namespace {

constexpr const char* kPcie = "PCIe";

struct Device {
  std::string name;    // "mlx5_0", "GPU 0000:10:00.0"
  std::string folder;  // below /sys/devices
  bool gpu = false;
};

std::string addressOf(const std::string& folder) {
  return folder.substr(folder.rfind('/') + 1);
}

std::vector<Device> devicesOf(const World& world) {
  std::vector<Device> found;
  std::set<std::string> seen;
  for (const char* kind : {"/sys/class/infiniband", "/sys/class/net"})
    for (const std::string& name : world.names(kind)) {
      const std::string folder = world.resolved(fmt::format("{}/{}/device", kind, name));
      if (!world.line(folder + "/class").empty() && seen.insert(folder).second)
        found.push_back({name, folder, false});
    }
  for (const std::string& whole : topo::acceleratorPaths(world.path("/sys"))) {
    const size_t below = whole.find("/sys/devices/");
    if (below == std::string::npos) continue;
    const std::string folder = whole.substr(below);
    found.push_back({"GPU " + addressOf(folder), folder, true});
  }
  return found;
}

bool hasGpu(const std::vector<Device>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const Device& one) { return one.gpu; });
}

unsigned byteAt(const std::string& config, size_t at) {
  return at < config.size() ? static_cast<unsigned char>(config[at]) : 0;
}
unsigned wordAt(const std::string& config, size_t at) {
  return byteAt(config, at) | byteAt(config, at + 1) << 8;
}

// The place of an extended capability in the configuration space of a device; 0: there is none.
size_t extendedCapability(const std::string& config, unsigned id) {
  constexpr size_t kFirst = 0x100;
  size_t at = kFirst;
  for (int i = 0; i < 64 && at >= kFirst && at + 8 <= config.size(); i++) {
    if (wordAt(config, at) == id) return at;
    at = wordAt(config, at + 2) >> 4;
  }
  return 0;
}

size_t capability(const std::string& config, unsigned id) {
  constexpr size_t kPointer = 0x34, kHeader = 0x40;
  size_t at = byteAt(config, kPointer);
  for (int i = 0; i < 48 && at >= kHeader && at + 2 <= config.size(); i++) {
    if (byteAt(config, at) == id) return at;
    at = byteAt(config, at + 1);
  }
  return 0;
}

// Bridges above the devices, once each. Their names are PCI addresses.
std::set<std::string> bridgesAbove(const World& world, const std::vector<Device>& devices) {
  std::set<std::string> found;
  for (const Device& device : devices) {
    std::string folder = device.folder;
    for (folder.resize(folder.rfind('/')); !world.line(folder + "/class").empty();
         folder.resize(folder.rfind('/')))
      found.insert(folder);
  }
  return found;
}

Finding needsRoot(const char* what, const std::string& of) {
  return {Severity::unknown, kPcie, what,
          fmt::format("the configuration space of {} is not shown to this user", of),
          byHand("sudo weft doctor, on the host itself")};
}

}  // namespace

Findings pcieLinks(const World& world) {
  Findings found;
  const std::vector<Device> devices = devicesOf(world);
  for (const Device& device : devices) {
    const auto width = world.number(device.folder + "/current_link_width");
    const auto most = world.number(device.folder + "/max_link_width");
    const std::string speed = world.line(device.folder + "/current_link_speed");
    const std::string best = world.line(device.folder + "/max_link_speed");
    const auto generations = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
    const bool narrow = width && most && *width > 0 && *width < *most;
    const bool slow = generations(speed) > 0 && generations(speed) < generations(best);
    // GPUs lower the speed of their link while they are idle.
    if (narrow || (slow && !device.gpu))
      found.push_back({Severity::warning, kPcie, device.name,
                       fmt::format("its link is x{} at {}, and could be x{} at {}", width.value_or(0), speed,
                                   most.value_or(0), best),
                       byHand("its slot: another one has more lanes; else seat the card anew")});
  }
  if (found.empty())
    found.push_back({Severity::fine,
                     kPcie,
                     "links",
                     devices.empty() ? "no card on PCIe here" : "as wide and fast as they can be",
                     {}});
  return found;
}

Findings accessControl(const World& world) {
  constexpr const char* kWhat = "ACS";
  constexpr unsigned kId = 0xd, kRedirects = 0x1c;  // P2P requests, completions, upstream forwarding
  const std::vector<Device> devices = devicesOf(world);
  if (!hasGpu(devices))
    return {{Severity::fine, kPcie, kWhat, "no GPU here whose memory a card would reach", {}}};
  Findings found;
  bool hidden = false;
  const std::set<std::string> bridges = bridgesAbove(world, devices);
  for (const std::string& bridge : bridges) {
    const std::string config = world.text(bridge + "/config").value_or("");
    hidden = hidden || config.size() <= 256;
    const size_t at = extendedCapability(config, kId);
    if (at == 0 || (wordAt(config, at + 6) & kRedirects) == 0) continue;
    const std::string address = addressOf(bridge);
    found.push_back({Severity::warning, kPcie, "ACS of bridge " + address,
                     fmt::format("control {:#06x}: what a card writes to a GPU goes through the root "
                                 "complex, slower or not at all",
                                 wordAt(config, at + 6)),
                     byRoot(Cure::bridgeControl, {address})});
  }
  if (found.empty() && hidden) return {needsRoot(kWhat, "the bridges above cards and GPUs")};
  if (found.empty())
    found.push_back({Severity::fine, kPcie, kWhat, fmt::format("off at {} bridges", bridges.size()), {}});
  return found;
}

Findings addressTranslation(const World& world) {
  constexpr const char* kWhat = "IOMMU";
  if (world.names("/sys/class/iommu").empty())
    return {{Severity::fine, kPcie, kWhat, "off, or hidden by a hypervisor", {}}};
  const std::vector<Device> devices = devicesOf(world);
  std::string translated;
  bool asked = false;
  for (const Device& device : devices) {
    const std::string type = world.line(device.folder + "/iommu_group/type");
    asked = asked || !type.empty();
    if (type.starts_with("DMA"))
      translated += (translated.empty() ? "" : ", ") + device.name + " (" + type + ")";
  }
  if (translated.empty() && !asked && !devices.empty())
    return {
        {Severity::unknown, kPcie, kWhat, "on; the kernel does not say for which devices it translates", {}}};
  if (translated.empty()) return {{Severity::fine, kPcie, kWhat, "on, and passes through", {}}};
  return {
      {hasGpu(devices) ? Severity::warning : Severity::note, kPcie, kWhat,
       fmt::format(
           "it translates for {}: GPUDirect is slow or fails (\"error 4\"), and each registration costs more",
           translated),
       byRoot(Cure::passThrough)}};
}

// Without it writes of a card wait for each other on the way to memory; with it, their order is the card's
// duty.
Findings relaxedOrdering(const World& world) {
  constexpr const char* kWhat = "relaxed ordering";
  constexpr unsigned kExpress = 0x10, kEnabled = 0x10;
  std::string off;
  std::string hidden;
  for (const Device& device : devicesOf(world)) {
    if (device.gpu || world.names("/sys/class/infiniband/" + device.name).empty()) continue;
    const std::string config = world.text(device.folder + "/config").value_or("");
    const size_t at = capability(config, kExpress);
    std::string& list = at == 0 ? hidden : off;
    if (at != 0 && (wordAt(config, at + 8) & kEnabled) != 0) continue;
    list += (list.empty() ? "" : ", ") + device.name;
  }
  if (!off.empty())
    return {{Severity::note, kPcie, kWhat,
             off + " may not use it: on AMD processors and in virtual machines half of the bandwidth is lost",
             byHand("the firmware's setting (PCI_WR_ORDERING=1 by mlxconfig), or the one of the BIOS")}};
  if (!hidden.empty()) return {needsRoot(kWhat, hidden)};
  return {{Severity::fine, kPcie, kWhat, "nothing forbids it", {}}};
}

}  // namespace weft::doctor
