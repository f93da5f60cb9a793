// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/merging.h"

#include "src/base/log.h"

namespace weft::core {

// NCCL puts a merged device below the PCI bridge that its members have in common, and loses one whose members
// are below none ("Could not find any local path from gpu 0 to net"): interfaces of containers and virtual
// machines. Refused, they stay two.
Status ncclCanMerge(const Net& net, std::span<const int> members) {
  for (const int member : members) {
    if (member < 0 || member >= net.deviceCount()) continue;
    for (const int index : net.railsOf(member)) {
      const DeviceInfo& rail = net.rail(index);
      if (rail.offload || rail.provider == "loop" || !rail.pciPath.empty()) continue;
      return Error(Code::unavailable, "merging devices",
                   rail.name +
                       " is no PCI device, and NCCL would not find what it is merged into; "
                       "WEFT_MERGE_NICS=NAMES merges such ones");
    }
  }
  return {};
}

}  // namespace weft::core
