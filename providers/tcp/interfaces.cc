// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/interfaces.h"

#include <algorithm>

#include "providers/tcp/spread.h"
#include "providers/tcp/wire.h"
#include "src/base/name_filter.h"
#include "src/base/process.h"
#include "src/topo/nic_facts.h"

namespace weft::tcp {

namespace {

constexpr int kDefaultSpeedMbps = 10000;
// NCCL's costs hold a network's latency already; what is told here comes on top, twice for Simple. NCCL's
// own sockets tell none. With 10 us it took LL, which sends every byte twice, up to 64 KiB, where Simple is
// faster over sockets (tests/bench/nccl-speed).
constexpr float kLatencyUs = 0;
// What is larger leaves as early, but without a copy, as long as its window lasts.
constexpr int kEagerBytes = 4096;

// IPv4 before IPv6, and a link-local address only where there is no other.
int rankOf(const SocketAddress& address) {
  if (address.family() == AF_INET) return 0;
  return address.isLinkLocal() ? 2 : 1;
}

std::vector<Interface> bestAddresses(const std::vector<Interface>& all) {
  std::vector<Interface> best;
  for (const Interface& one : all) {
    const auto same = [&](const Interface& other) { return other.name == one.name; };
    const auto known = std::find_if(best.begin(), best.end(), same);
    if (known == best.end())
      best.push_back(one);
    else if (rankOf(one.address) < rankOf(known->address))
      *known = one;
  }
  return best;
}

bool staysOnHost(const std::string& name) {
  return name == "lo" || isContainerBridge(name);
}

Nic describeOne(const Interface& interface, const Config& config) {
  const topo::NicFacts facts = topo::netdevFacts(interface.name);
  DeviceInfo info;
  info.name = interface.name;
  info.provider = "tcp";
  info.address = interface.address.ipText();
  info.pciPath = facts.pciPath;
  info.guid = facts.guid ? facts.guid : topo::madeUpGuid(hostName(), interface.name);
  const int speed = config.tcpSpeedMbps ? config.tcpSpeedMbps : facts.speedMbps;
  info.speedMbps = speed ? speed : kDefaultSpeedMbps;
  info.connections = connectionsText(static_cast<size_t>(config.tcpStreams), speed, kMostStreams);
  info.latencyUs = kLatencyUs;
  info.eagerBytes = kEagerBytes;
  info.postIsCall = true;
  info.messages = true;
  info.numaNode = facts.numaNode;
  info.mtu = facts.mtu;
  info.delivery = Delivery::selectable;
  info.virtualFunction = facts.virtualFunction;
  info.linkLayer = facts.linkLayer;
  info.withoutGpu = "sockets move data by this machine's processors";
  info.maxWriteBytes = kMaxWriteBytes;
  return {std::move(info), speed > 0, interface.address};
}

}  // namespace

std::vector<Interface> chooseInterfaces(const std::vector<Interface>& all, const Config& config,
                                        std::vector<Refusal>* refusals) {
  std::vector<Interface> chosen = bestAddresses(all);
  const NameFilter hca(config.hca);
  const bool byHca =
      std::any_of(chosen.begin(), chosen.end(), [&](const Interface& one) { return hca.names(one.name); });
  const NameFilter filter(byHca ? config.hca : config.socketIfname);
  const auto drop = [&](auto unwanted, const std::string& why, bool byUser) {
    for (const Interface& one : chosen)
      if (unwanted(one)) refusals->push_back({"tcp " + one.name, why, false, byUser});
    std::erase_if(chosen, unwanted);
  };
  drop([&](const Interface& one) { return !filter.accepts(one.name); },
       byHca ? leftOutBy("WEFT_HCA (or NCCL_IB_HCA)", config.hca)
             : leftOutBy("WEFT_SOCKET_IFNAME (or NCCL_SOCKET_IFNAME)", config.socketIfname),
       true);
  const auto local = [&](const Interface& one) {
    return staysOnHost(one.name) && (filter.excludes() || !filter.names(one.name));
  };
  if (!std::all_of(chosen.begin(), chosen.end(), local))
    drop(local, "it reaches no other host; name it in WEFT_SOCKET_IFNAME to use it", false);
  return chosen;
}

Result<Catalogue> discoverNics(const Config& config) {
  TRY(const auto all, localInterfaces());
  Catalogue catalogue;
  if (all.empty()) catalogue.refusals.push_back({"tcp", "no interface is up, not even loopback"});
  for (const Interface& one : chooseInterfaces(all, config, &catalogue.refusals))
    catalogue.nics.push_back(describeOne(one, config));
  return catalogue;
}

}  // namespace weft::tcp
