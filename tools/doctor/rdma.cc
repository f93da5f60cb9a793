// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/doctor/checks.h"

// RDMA cards by what the kernel says of their ports: state, width and speed, addresses (GIDs), error
// counters, and whether this user may open them.
namespace weft::doctor {

namespace {

constexpr const char* kRdma = "RDMA";

struct Port {
  std::string name;    // "mlx5_0:1"
  std::string card;    // its folder
  std::string folder;  // the port's
};

std::vector<Port> portsOf(const World& world) {
  std::vector<Port> found;
  for (const std::string& card : world.names("/sys/class/infiniband")) {
    const std::string folder = "/sys/class/infiniband/" + card;
    for (const std::string& port : world.names(folder + "/ports"))
      found.push_back({card + ":" + port, folder, folder + "/ports/" + port});
  }
  return found;
}

// "4: ACTIVE" without its number.
std::string stateOf(const World& world, const Port& port) {
  const std::string line = world.line(port.folder + "/state");
  const size_t blank = line.find(' ');
  return blank == std::string::npos ? line : line.substr(blank + 1);
}

bool isEthernet(const World& world, const Port& port) {
  return world.line(port.folder + "/link_layer") == "Ethernet";
}

Findings orNone(Findings found, const char* what, const char* fine) {
  if (found.empty()) found.push_back({Severity::fine, kRdma, what, fine, {}});
  return found;
}

Finding portIsDown(const World& world, const Port& port, const std::string& state) {
  if (state == "INIT")
    return {Severity::error, kRdma, port.name, "it waits for its subnet manager (state INIT)",
            byRoot(Cure::subnetManager)};
  const bool ethernet = isEthernet(world, port);
  return {Severity::warning, kRdma, port.name,
          fmt::format("it is {} ({}), and jobs go without it", state.empty() ? "in no known state" : state,
                      world.line(port.folder + "/phys_state")),
          ethernet ? byHand("its interface (ip link), its cable and the switch's port")
                   : byHand("its cable and the switch's port: ibstat, iblinkinfo")};
}

// Ports of one kind of card have one rate; two lanes of four are a bad cable.
void compareRates(const World& world, const std::vector<Port>& ports, Findings* found) {
  std::map<std::string, std::map<int64_t, std::vector<std::string>>> byKind;
  for (const Port& port : ports) {
    const std::string rate = world.line(port.folder + "/rate");
    if (stateOf(world, port) != "ACTIVE") continue;
    if (rate.find("(1X") != std::string::npos || rate.find("(2X") != std::string::npos)
      found->push_back({isEthernet(world, port) ? Severity::note : Severity::warning, kRdma, port.name,
                        fmt::format("its link is {}: fewer than four lanes", rate),
                        byHand("its cable and transceivers: mlxlink -d, iblinkinfo")});
    byKind[world.line(port.card + "/board_id") + world.line(port.card + "/hca_type")]
          [world.number(port.folder + "/rate").value_or(0)]
              .push_back(port.name);
  }
  for (const auto& [kind, byRate] : byKind)
    if (byRate.size() > 1)
      for (const std::string& slow : byRate.begin()->second)
        found->push_back({Severity::warning, kRdma, slow,
                          fmt::format("{} Gb/s, while {} of the same kind has {}", byRate.begin()->first,
                                      byRate.rbegin()->second.front(), byRate.rbegin()->first),
                          byHand("its cable and the speed of the switch's port")});
}

int64_t gidsOfVersion2(const World& world, const Port& port) {
  int64_t count = 0;
  for (const std::string& index : world.names(port.folder + "/gids")) {
    const std::string gid = world.line(port.folder + "/gids/" + index);
    const bool set = gid.find_first_not_of("0:") != std::string::npos && !gid.starts_with("fe80:");
    count += set && world.line(port.folder + "/gid_attrs/types/" + index) == "RoCE v2" ? 1 : 0;
  }
  return count;
}

}  // namespace

Findings rdmaPorts(const World& world) {
  const std::vector<Port> ports = portsOf(world);
  Findings found;
  for (const Port& port : ports)
    if (const std::string state = stateOf(world, port); state != "ACTIVE")
      found.push_back(portIsDown(world, port, state));
  compareRates(world, ports, &found);
  return orNone(std::move(found), "ports",
                ports.empty() ? "no card here" : "all are up, at one rate for each kind");
}

// RoCE packets carry an IP address, which is that of the port's interface in this network namespace.
Findings rdmaAddresses(const World& world) {
  Findings found;
  for (const Port& port : portsOf(world)) {
    if (!isEthernet(world, port) || stateOf(world, port) != "ACTIVE") continue;
    if (world.names(port.folder + "/gids").empty()) {
      found.push_back({Severity::unknown, kRdma, port.name, "its table of GIDs cannot be read here", {}});
    } else if (gidsOfVersion2(world, port) == 0) {
      found.push_back({Severity::error, kRdma, port.name,
                       "it has no RoCE v2 address in this network namespace",
                       byRoot(Cure::portAddress, {port.name})});
    }
  }
  if (const auto index = world.settingNumber("NCCL_IB_GID_INDEX");
      index && !world.setting("WEFT_IB_GID_INDEX"))
    for (const Port& port : portsOf(world)) {
      const std::string gid = world.line(fmt::format("{}/gids/{}", port.folder, *index));
      if (isEthernet(world, port) && *index >= 0 && gid.find_first_not_of("0:") == std::string::npos)
        found.push_back({Severity::error, kRdma, port.name,
                         fmt::format("NCCL_IB_GID_INDEX={} names an entry that is empty here", *index),
                         byHand("unset NCCL_IB_GID_INDEX: weft looks for the right entry itself")});
    }
  return orNone(std::move(found), "GIDs", "each RoCE port has one of version 2");
}

// Counters since the driver was loaded: a link that went down, packets lost or damaged, marks of congestion.
Findings rdmaCounters(const World& world) {
  struct Row {
    const char* file;
    int64_t few;  // and fewer say nothing
    const char* means;
    const char* todo;
  };
  static constexpr Row kRows[] = {
      {"counters/link_downed", 0, "the link went down so often",
       "its cable; then: perfquery -R, and look again"},
      {"counters/symbol_error", 1000, "symbols arrived damaged", "its cable and transceivers"},
      {"counters/port_rcv_errors", 100, "packets arrived damaged", "its cable and transceivers"},
      {"counters/port_rcv_remote_physical_errors", 100, "packets arrived marked as damaged",
       "cables further along the path: ibqueryerrors"},
      {"counters/excessive_buffer_overrun_errors", 0, "buffers overran",
       "the flow control of the switch's port"},
      {"hw_counters/packet_seq_err", 1000, "packets were lost on the way",
       "PFC and ECN of the switches; WEFT_IB_TC for their class"},
      {"hw_counters/out_of_sequence", 100000, "packets came out of order",
       "PFC and ECN of the switches; WEFT_IB_TC for their class"},
      {"hw_counters/local_ack_timeout_err", 100, "packets were never acknowledged",
       "the path to its peers: weft perf --check-cluster, a rank on each host"},
      {"hw_counters/rnr_nak_retry_err", 100, "a peer had no receive posted",
       "the peer that is slow: weft perf --check-cluster, a rank on each host"},
      {"hw_counters/rp_cnp_handled", 1000000, "the switches asked it to send slower (ECN)",
       "the load of this fabric, or its thresholds of ECN"},
  };
  Findings found;
  bool any = false;
  const std::vector<Port> ports = portsOf(world);
  for (const Port& port : ports)
    for (const Row& row : kRows) {
      const auto count = world.number(port.folder + "/" + row.file);
      any = any || count.has_value();
      if (count && *count > row.few)
        found.push_back({Severity::warning, kRdma, port.name,
                         fmt::format("{} is {}: {}", row.file, *count, row.means), byHand(row.todo)});
    }
  if (!any && !ports.empty())
    return {{Severity::unknown, kRdma, "counters", "no port shows its counters here",
             byHand("on the host: perfquery, rdma statistic, ethtool -S for PFC by priority")}};
  return orNone(std::move(found), "counters",
                ports.empty() ? "no card here" : "no errors; PFC by priority: ethtool -S");
}

Findings rdmaAccess(const World& world) {
  constexpr const char* kWhat = "/dev/infiniband";
  if (world.names("/sys/class/infiniband").empty())
    return {{Severity::fine, kRdma, kWhat, "no card here", {}}};
  Findings found;
  bool any = false;
  for (const std::string& name : world.names(kWhat)) {
    if (!name.starts_with("uverbs")) continue;
    any = true;
    const std::string file = std::string(kWhat) + "/" + name;
    if (::access(world.path(file).c_str(), R_OK | W_OK) != 0)
      found.push_back({Severity::error, kRdma, file, "this user may not read and write it",
                       byRoot(Cure::deviceAccess, {name})});
  }
  if (!any)
    found.push_back(
        {Severity::error, kRdma, kWhat, "cards are here, and no uverbs device to use them by",
         byHand("modprobe ib_uverbs; a container needs /dev/infiniband: docker --device /dev/infiniband")});
  return orNone(std::move(found), kWhat, "open to this user");
}

}  // namespace weft::doctor
