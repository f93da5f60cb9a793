// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>

// The facts about a network card in the kernel's sysfs: where it sits, how fast it is, who it is. Everything
// may be missing (containers, virtual interfaces), so each field has a value that says so. `root` is "/sys"
// except in tests. Any thread; reads files, so not for the data path.
namespace weft::topo {

struct NicFacts {
  std::string pciPath;  // "/sys/devices/pci0000:00/0000:00:05.0"; empty when it is no PCI device
  int speedMbps = 0;    // 0: not known
  int numaNode = -1;
  int mtu = 0;
  uint64_t guid = 0;             // 0: none; an Ethernet card's MAC, an RDMA device's system image GUID
  std::string linkLayer;         // as sysfs calls it: "InfiniBand", "Ethernet"; empty where it says nothing
  bool virtualFunction = false;  // SR-IOV, where this host has the card itself too
};

NicFacts netdevFacts(const std::string& name, const std::string& root = "/sys");
NicFacts rdmaFacts(const std::string& name, int port, const std::string& root = "/sys");

// For a device that has neither MAC nor GUID: stable on this host, and different between hosts and names.
uint64_t madeUpGuid(const std::string& host, const std::string& name);

}  // namespace weft::topo
