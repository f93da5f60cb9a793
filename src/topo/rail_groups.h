// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/transport.h"

// Which network cards form one device by themselves, from where they sit on the PCI bus. Pure functions over
// paths as sysfs has them, and the one that reads those paths. NCCL's own merging on top of it is not decided
// here. Any thread; off the data path.
namespace weft::topo {

// A device as NCCL is told: its rails by their index, in order, and why it is these.
struct RailGroup {
  std::vector<int> rails;
  std::string reason;
};

// `rule` is the value of WEFT_MERGE_NICS:
//   auto           ports of one card; cards below one PCI switch, as many to a device as there are for each
//                  accelerator below it
//   port           only ports of one card
//   off            none
//   a,b;c,d        these and no others, by name
// or one of NCCL_NET_MERGE_LEVEL's words: LOC is off, PORT is port, those that reach further are auto.
// `accelerators` are sysfs directories of GPUs. Only cards that move data themselves, of one provider, link
// layer and speed are put together by a rule; whoever names them may put together what he likes. Every device
// is in exactly one group; groups are in the order of their first rails.
Result<std::vector<RailGroup>> groupRails(std::span<const DeviceInfo> devices,
                                          std::span<const std::string> accelerators, const std::string& rule);

// Sysfs directories of the GPUs and other accelerators of this machine, whoever may use them.
std::vector<std::string> acceleratorPaths(const std::string& root = "/sys");

}  // namespace weft::topo
