// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/topology.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "src/topo/rail_groups.h"
#include "src/topo/sysfs.h"

namespace weft::info {

namespace {

namespace fs = std::filesystem;

std::string attribute(const char* name, const std::string& value) {
  return value.empty() ? "" : fmt::format(" {}=\"{}\"", name, value);
}

void write(const PciNode& node, int depth, std::string* text) {
  const std::string indent(static_cast<size_t>(depth) * 2, ' ');
  *text += fmt::format("{}<pci busid=\"{}\"{}{}{}", indent, node.busId, attribute("class", node.pciClass),
                       attribute("link_speed", node.speed), attribute("link_width", node.width));
  if (node.below.empty()) {
    *text += "/>\n";
    return;
  }
  *text += ">\n";
  for (const PciNode& below : node.below) write(below, depth + 1, text);
  *text += indent + "</pci>\n";
}

// "0000:00:1f.0", as the last part of a path in sysfs.
bool isBusId(const std::string& name) {
  return name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

// Everything between the root of the bus and the device, which is what a path in sysfs is made of.
void insert(const fs::path& device, std::vector<PciNode>* nodes) {
  fs::path here;
  for (const fs::path& part : device) {
    here /= part;
    if (!isBusId(part.string())) continue;
    auto found = std::find_if(nodes->begin(), nodes->end(),
                              [&](const PciNode& node) { return node.busId == part.string(); });
    if (found == nodes->end()) {
      const std::string path = here.string();
      nodes->push_back({part.string(),
                        topo::readLine(path + "/class"),
                        topo::readLine(path + "/current_link_speed"),
                        topo::readLine(path + "/current_link_width"),
                        {}});
      found = std::prev(nodes->end());
    }
    nodes = &found->below;
  }
}

std::vector<std::string> entriesOf(const std::string& folder) {
  std::vector<std::string> entries;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) entries.push_back(entry.path().string());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// GPUs, and PCI devices that the kernel knows as a network interface or as an RDMA device.
std::vector<std::string> devicePaths(const std::string& sys) {
  std::vector<std::string> paths = topo::acceleratorPaths(sys);
  for (const char* kind : {"/class/infiniband", "/class/net"}) {
    for (const std::string& entry : entriesOf(sys + kind)) {
      std::error_code failed;
      const fs::path device = fs::canonical(entry + "/device", failed);
      if (!failed && isBusId(device.filename().string())) paths.push_back(device.string());
    }
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

// "vendor_id	: GenuineIntel", of the first processor.
std::string cpuFact(const std::string& proc, const std::string& name) {
  std::ifstream file(proc + "/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != name)
      continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return {};
}

CpuNode cpuNode(int numa, const std::string& sys, const std::string& proc) {
  CpuNode cpu;
  cpu.numa = numa;
  cpu.affinity = topo::readLine(fmt::format("{}/devices/system/node/node{}/cpumap", sys, numa));
  cpu.vendor = cpuFact(proc, "vendor_id");
  cpu.arch = cpu.vendor.empty() ? "arm64" : "x86_64";
  cpu.family = cpuFact(proc, "cpu family");
  cpu.model = cpuFact(proc, "model");
  return cpu;
}

}  // namespace

Result<Topology> ownTopology(const std::string& root) {
  const std::string sys = root + "/sys", proc = root + "/proc";
  std::map<int, CpuNode> cpus;
  for (const std::string& path : devicePaths(sys)) {
    const std::string text = topo::readLine(path + "/numa_node");
    const int numa = text.empty() ? 0 : std::max(0, std::atoi(text.c_str()));
    auto [cpu, fresh] = cpus.try_emplace(numa);
    if (fresh) cpu->second = cpuNode(numa, sys, proc);
    insert(fs::path(path), &cpu->second.devices);
  }
  if (cpus.empty())
    return Error(Code::unavailable, "--topology this",
                 "this machine shows neither a GPU nor a network card on its PCI buses");
  Topology topology{"this machine", "what the kernel shows", {}};
  for (auto& [numa, cpu] : cpus) topology.cpus.push_back(std::move(cpu));
  return topology;
}

std::string topologyXml(const Topology& topology) {
  std::string text = fmt::format("<!-- {}, for NCCL_TOPO_FILE. Source: {} -->\n<system version=\"1\">\n",
                                 topology.title, topology.source);
  for (const CpuNode& cpu : topology.cpus) {
    text += fmt::format("  <cpu numaid=\"{}\"{}{}{}{}{}>\n", cpu.numa, attribute("affinity", cpu.affinity),
                        attribute("arch", cpu.arch), attribute("vendor", cpu.vendor),
                        attribute("familyid", cpu.family), attribute("modelid", cpu.model));
    for (const PciNode& node : cpu.devices) write(node, 2, &text);
    text += "  </cpu>\n";
  }
  return text + "</system>\n";
}

}  // namespace weft::info
