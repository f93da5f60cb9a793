// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "weft/result.h"

// The file that NCCL_TOPO_FILE names: which GPUs and network cards share a PCI switch. Virtual machines hide
// that, and NCCL then sends by the wrong card, or not directly to GPU memory. Used by one thread.
namespace weft::info {

// Empty strings are left out of the file; NCCL asks the kernel for them.
struct PciNode {
  std::string busId;  // "0000:10:1c.0"; a bridge that the machine does not show has a made-up one
  std::string pciClass;
  std::string speed;  // of its link, as the kernel words it
  std::string width;
  std::vector<PciNode> below;
};

struct CpuNode {
  int numa = 0;
  std::string affinity;  // which processors, in hexadecimal words as the kernel has them
  std::string arch;
  std::string vendor;
  std::string family;
  std::string model;
  std::vector<PciNode> devices;
};

struct Topology {
  std::string title;   // of the machine
  std::string source;  // of what is said
  std::vector<CpuNode> cpus;
};

// The machines that are known by name, and one of them; an error names the nearest.
std::vector<std::string> knownTopologies();
Result<Topology> knownTopology(const std::string& name);

// The devices that the kernel of this machine shows below `root` ("/sys" and "/proc" of it, "" except in
// tests): GPUs and network cards with the bridges above them. An error where there is neither.
Result<Topology> ownTopology(const std::string& root = "");

std::string topologyXml(const Topology& topology);

}  // namespace weft::info
