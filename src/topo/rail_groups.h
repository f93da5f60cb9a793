// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/transport.h"

// The network cards that form one device by themselves, by their places on the PCI bus. Pure functions over
// paths of sysfs, and acceleratorPaths(), which reads them. NCCL may merge further; that is not decided here.
// Any thread; off the data path.
namespace weft::topo {

// A device as NCCL is told of it: its rails by their index, in order, and the reason for the group.
struct RailGroup {
  std::vector<int> rails;
  std::string reason;
};

// `rule` is the value of WEFT_MERGE_NICS:
//   auto           ports of one card; cards below one PCI switch, as many for a device as there are for each
//                  accelerator below the switch
//   port           only ports of one card
//   off            no groups
//   a,b;c,d        these groups and no others, by name
// or a word of NCCL_NET_MERGE_LEVEL: LOC is off, PORT is port, words that reach further are auto.
// `accelerators` are sysfs directories of GPUs. A rule groups only cards that move data themselves and are of
// the same provider, link layer and speed; a user who names cards may group any. Every device is in exactly
// one group. The groups are in the order of their first rails.
Result<std::vector<RailGroup>> groupRails(std::span<const DeviceInfo> devices,
                                          std::span<const std::string> accelerators, const std::string& rule);

// The sysfs directories of this machine's GPUs and other accelerators, whether this process may use them or
// not.
std::vector<std::string> acceleratorPaths(const std::string& root = "/sys");

}  // namespace weft::topo
