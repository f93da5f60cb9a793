// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>

// The facts about a network card in the kernel's sysfs: place, speed and identity. Any of them may be missing
// (containers, virtual interfaces), so each field has a value for that. `root` is "/sys" except in tests. Any
// thread; reads files, so not for the data path.
namespace weft::topo {

struct NicFacts {
  std::string pciPath;           // "/sys/devices/pci0000:00/0000:00:05.0"; empty: it is no PCI device
  int speedMbps = 0;             // 0: unknown
  int numaNode = -1;             // -1: unknown
  int mtu = 0;                   // bytes; 0: unknown
  uint64_t guid = 0;             // 0: none; an Ethernet card's MAC, an RDMA device's system image GUID
  std::string linkLayer;         // in sysfs's words: "InfiniBand", "Ethernet"; empty: not told
  bool virtualFunction = false;  // a virtual function (SR-IOV) on the host that has the card itself
};

// Sources: Documentation/ABI/testing/sysfs-class-net and stable/sysfs-class-infiniband of the kernel.
NicFacts netdevFacts(const std::string& name, const std::string& root = "/sys");
NicFacts rdmaFacts(const std::string& name, int port, const std::string& root = "/sys");

// For a device without MAC and GUID: stable on this host, and different between hosts and between names.
uint64_t madeUpGuid(const std::string& host, const std::string& name);

}  // namespace weft::topo
