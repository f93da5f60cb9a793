// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/name_filter.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/nccl_conf.h"

// Network interfaces: which there are, their addresses and subnets, how long a packet may be, how fast they
// are.
namespace weft::doctor {

namespace {

constexpr const char* kInterfaces = "interfaces";

std::string folderOf(const std::string& interface) {
  return "/sys/class/net/" + interface;
}

bool isCard(const World& world, const std::string& interface) {
  return !world.resolved(folderOf(interface) + "/device").empty();
}

// Of the user, as the plugin reads it.
std::optional<std::string> interfaceSetting(const World& world) {
  const auto ours = ncclSetting(world, "WEFT_SOCKET_IFNAME");
  const auto found = ours ? ours : ncclSetting(world, "NCCL_SOCKET_IFNAME");
  return found ? std::optional(found->value) : std::nullopt;
}

// The interfaces that peers would be told of: not the loopback, no container's bridge, and by the setting.
bool isUsed(const World& world, const HostAddress& one) {
  const std::optional<std::string> setting = interfaceSetting(world);
  const NameFilter filter(setting ? *setting : "", NameFilter::Colon::plain);
  if (one.loopback) return false;
  if (filter.empty()) return !isContainerBridge(one.interface);
  return filter.accepts(one.interface);
}

Findings couldNotLook(const char* what, const Error& why) {
  return {{Severity::unknown, kInterfaces, what, why.message(), {}}};
}

// The part of an address that its subnet has, as text.
std::string subnetOf(const HostAddress& one) {
  std::vector<std::byte> bytes(one.address.ip().begin(), one.address.ip().end());
  for (size_t i = 0; i < bytes.size(); i++) {
    const int bits = std::clamp(one.prefix - static_cast<int>(i) * 8, 0, 8);
    bytes[i] &= static_cast<std::byte>(0xff00 >> bits);
  }
  return fmt::format("{}/{}", SocketAddress::of(bytes, 0).ipText(), one.prefix);
}

}  // namespace

Findings interfacesUp(const World& world) {
  constexpr const char* kWhat = "interfaces up";
  const auto all = world.addresses();
  if (!all) return couldNotLook(kWhat, all.error());
  std::set<std::string> used;
  bool v4 = false;
  for (const HostAddress& one : *all)
    if (isUsed(world, one) && !one.address.isLinkLocal()) {
      used.insert(one.interface);
      v4 = v4 || one.address.family() == AF_INET;
    }
  Findings found;
  for (const std::string& name : world.names("/sys/class/net")) {
    const std::string state = world.line(folderOf(name) + "/operstate");
    if (isCard(world, name) && state == "down")
      found.push_back({Severity::note, kInterfaces, name, "the card is down or has no link",
                       byRoot(Cure::bringUp, {name})});
    if (used.contains(name) && world.line(folderOf(name) + "/carrier") == "0")
      found.push_back(
          {Severity::error, kInterfaces, name, "it has an address that peers are told of, and no link",
           byHand("its cable and the switch's port; or leave it out: WEFT_SOCKET_IFNAME=^" + name)});
  }
  if (!used.empty()) {
    found.push_back({v4 ? Severity::fine : Severity::note,
                     kInterfaces,
                     kWhat,
                     fmt::format("{}{}", fmt::join(used, ", "),
                                 v4 ? "" : "; none has an IPv4 address: all hosts of a job need IPv6 then"),
                     {}});
    return found;
  }
  const std::optional<std::string> setting = interfaceSetting(world);
  found.push_back(
      {Severity::error, kInterfaces, kWhat,
       setting
           ? fmt::format("none that \"{}\" (WEFT_SOCKET_IFNAME or NCCL_SOCKET_IFNAME) lets through", *setting)
           : "none has an address that another host could reach",
       setting ? byHand("correct that setting; ip -br address lists what is there")
               : byHand("ip link set dev NAME up, and an address for it; in a container: a network")});
  return found;
}

// docker0 has one address on every host. weft passes over such bridges unless it is told to use them.
Findings sharedAddresses(const World& world) {
  constexpr const char* kWhat = "addresses";
  const auto all = world.addresses();
  if (!all) return couldNotLook(kWhat, all.error());
  Findings found;
  std::map<std::string, std::set<std::string>> byAddress;
  std::set<std::string> bridges;
  for (const HostAddress& one : *all) {
    if (!one.address.isLinkLocal() && !one.loopback) byAddress[one.address.ipText()].insert(one.interface);
    if (isContainerBridge(one.interface)) bridges.insert(one.interface);
    if (isContainerBridge(one.interface) && isUsed(world, one))
      found.push_back(
          {Severity::error, kInterfaces, one.interface,
           fmt::format("{} is a bridge of this host with the same address on others, and the setting \"{}\" "
                       "offers it to peers",
                       one.address.ipText(), *interfaceSetting(world)),
           bySetting("WEFT_SOCKET_IFNAME=^" + one.interface)});
  }
  for (const auto& [address, interfaces] : byAddress)
    if (interfaces.size() > 1)
      found.push_back({Severity::error, kInterfaces, kWhat,
                       fmt::format("{} is an address of {}", address, fmt::join(interfaces, " and of ")),
                       byRoot(Cure::deleteAddress, {address, *interfaces.rbegin()})});
  if (found.empty())
    found.push_back({Severity::fine,
                     kInterfaces,
                     kWhat,
                     bridges.empty()
                         ? "none is there twice"
                         : fmt::format("none is there twice; {} left out, as it leads to no other host",
                                       fmt::join(bridges, ", ")),
                     {}});
  return found;
}

// The kernel then answers for one interface's address on the other (ARP flux), and leaves by the first route.
Findings subnets(const World& world) {
  constexpr const char* kWhat = "subnets";
  const auto all = world.addresses();
  if (!all) return couldNotLook(kWhat, all.error());
  std::map<std::string, std::set<std::string>> inSubnet;
  for (const HostAddress& one : *all)
    if (isUsed(world, one) && !one.address.isLinkLocal() && one.prefix > 0 &&
        one.prefix < static_cast<int>(one.address.ip().size()) * 8)
      inSubnet[subnetOf(one)].insert(one.interface);
  const int64_t answers = world.number("/proc/sys/net/ipv4/conf/all/arp_ignore").value_or(0);
  const int64_t filters = world.number("/proc/sys/net/ipv4/conf/all/rp_filter").value_or(0);
  Findings found;
  for (const auto& [subnet, interfaces] : inSubnet) {
    if (interfaces.size() < 2) continue;
    const bool settled = answers >= 1 && filters != 1;
    found.push_back(
        {settled ? Severity::note : Severity::warning, kInterfaces, subnet,
         fmt::format("{} are in one subnet: the kernel leaves by the first route and answers for each on "
                     "either (arp_ignore {}, rp_filter {})",
                     fmt::join(interfaces, " and "), answers, filters),
         settled ? Mend{} : byRoot(Cure::answerApart)});
  }
  if (found.empty()) found.push_back({Severity::fine, kInterfaces, kWhat, "each interface has its own", {}});
  return found;
}

Findings packetSizes(const World& world) {
  constexpr const char* kWhat = "MTU";
  constexpr int64_t kEthernet = 1500, kFastMbps = 25000;
  const auto all = world.addresses();
  if (!all) return couldNotLook(kWhat, all.error());
  Findings found;
  std::set<std::string> seen;
  std::map<int64_t, std::set<std::string>> ofCards;
  for (const HostAddress& one : *all) {
    if (!isUsed(world, one) || !seen.insert(one.interface).second) continue;
    const auto mtu = world.number(folderOf(one.interface) + "/mtu");
    const int64_t speed = world.number(folderOf(one.interface) + "/speed").value_or(0);
    if (!mtu) {
      found.push_back({Severity::unknown, kInterfaces, one.interface, "its MTU cannot be read", {}});
      continue;
    }
    if (isCard(world, one.interface)) ofCards[*mtu].insert(one.interface);
    if (*mtu < kEthernet)
      found.push_back({Severity::note,
                       kInterfaces,
                       one.interface,
                       fmt::format("MTU {}, as tunnels have: each message costs more packets", *mtu),
                       {}});
    if (speed >= kFastMbps && *mtu <= kEthernet)
      found.push_back(
          {Severity::warning, kInterfaces, one.interface,
           fmt::format("MTU {} at {} Gb/s: packets of 9000 bytes cost a sixth of the processor time", *mtu,
                       speed / 1000),
           byRoot(Cure::longPackets, {one.interface})});
  }
  if (ofCards.size() > 1) {
    std::string each;
    for (const auto& [mtu, interfaces] : ofCards)
      each += fmt::format("{}{} on {}", each.empty() ? "" : ", ", mtu, fmt::join(interfaces, ", "));
    found.push_back({Severity::warning, kInterfaces, kWhat, "cards of this host differ: " + each,
                     byRoot(Cure::oneLength,
                            {*ofCards.begin()->second.begin(), std::to_string(ofCards.rbegin()->first)})});
  }
  if (found.empty()) found.push_back({Severity::fine, kInterfaces, kWhat, "as large as it should be", {}});
  return found;
}

// Cards of one driver are mostly of one kind: the slower of them has a bad cable or another port of the
// switch.
Findings linkSpeeds(const World& world) {
  constexpr const char* kWhat = "link speed";
  std::map<std::string, std::map<int64_t, std::set<std::string>>> byKind;
  Findings found;
  for (const std::string& name : world.names("/sys/class/net")) {
    const std::string folder = folderOf(name);
    const int64_t speed = world.number(folder + "/speed").value_or(0);
    if (!isCard(world, name) || speed <= 0) continue;
    if (world.line(folder + "/duplex") == "half")
      found.push_back({Severity::error, kInterfaces, name, "half duplex", byRoot(Cure::fullDuplex, {name})});
    byKind[world.line(folder + "/device/vendor") + world.line(folder + "/device/device")][speed].insert(name);
  }
  for (const auto& [kind, bySpeed] : byKind) {
    if (bySpeed.size() < 2) continue;
    const auto& [least, slow] = *bySpeed.begin();
    found.push_back({Severity::warning, kInterfaces, fmt::format("{}", fmt::join(slow, ", ")),
                     fmt::format("{} Mb/s, while a card of the same kind ({}) has {}", least,
                                 *bySpeed.rbegin()->second.begin(), bySpeed.rbegin()->first),
                     byHand("its cable, and the speed of the switch's port: ethtool " + *slow.begin())});
  }
  if (found.empty())
    found.push_back({Severity::fine, kInterfaces, kWhat, "cards of one kind have one speed", {}});
  return found;
}

}  // namespace weft::doctor
