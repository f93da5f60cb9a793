// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/cluster.h"

#include <algorithm>
#include <functional>
#include <set>
#include <sys/utsname.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/config.h"
#include "src/base/process.h"
#include "src/base/version.h"
#include "src/control/addresses.h"
#include "tools/doctor/letter.h"
#include "tools/doctor/nccl_conf.h"
#include "tools/doctor/probe.h"
#include "tools/info/nccl_copies.h"
#include "tools/perf/place.h"

namespace weft::doctor {

namespace {

constexpr const char* kBetween = "between the hosts";
constexpr Milliseconds kTogether{120000};  // that ranks wait for each other
constexpr size_t kMostProbed = 32;         // other hosts by one

// How bad it is that hosts differ in a value.
struct Weight {
  const char* name;
  Severity severity;
  const char* mend;
};
constexpr Weight kWeights[] = {
    {"weft", Severity::error, "one image, or one package version, for all hosts"},
    {"settings of weft", Severity::warning, "the same WEFT_* on all hosts, and the same /etc/weft.conf"},
    {"settings of NCCL", Severity::warning,
     "the same NCCL_* on all hosts, and the same /etc/nccl.conf and ~/.nccl.conf"},
    {"NCCL", Severity::warning, "one NCCL for all hosts"},
    {"RDMA cards", Severity::warning,
     "a host with fewer cards holds up the others: weft doctor there says why"},
    {"interfaces", Severity::note, "WEFT_SOCKET_IFNAME names what all of them have"},
    {"MTU", Severity::error, "one MTU for all: ip link set dev INTERFACE mtu"},
    {"kernel", Severity::note, ""},
    {"processors", Severity::note, ""},
};

std::string cardsText(const World& world) {
  std::map<std::string, int> kinds;
  for (const std::string& card : world.names("/sys/class/infiniband"))
    for (const std::string& port : world.names("/sys/class/infiniband/" + card + "/ports"))
      kinds[world.line(fmt::format("/sys/class/infiniband/{}/ports/{}/rate", card, port))]++;
  std::string text;
  for (const auto& [rate, count] : kinds)
    text += fmt::format("{}{} at {}", text.empty() ? "" : ", ", count, rate);
  return text.empty() ? "none" : text;
}

// Names that begin so, but for those by which a launcher tells the ranks apart.
std::string settingsText(const World& world, std::string_view beginning) {
  std::string text;
  for (const auto& [name, set] : ncclEnvironment(world))
    if (name.starts_with(beginning) && name != "NCCL_HOSTID" && name != "WEFT_AGGD")
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, shownValue(name, set.value));
  return text.empty() ? "none" : text;
}

std::string ncclText() {
  std::set<std::string> versions;
  for (const info::NcclCopy& copy : info::findNccl())
    versions.insert(fmt::format("{}.{}.{}", copy.version.major, copy.version.minor, copy.version.patch));
  return versions.empty() ? "none found" : fmt::format("{}", fmt::join(versions, ", "));
}

std::vector<std::string> addressesOf(const std::string& filter) {
  std::vector<std::string> texts;
  const auto interfaces = localInterfaces();
  if (!interfaces) return texts;
  const auto chosen = control::chooseAddresses(*interfaces, filter);
  if (!chosen) return texts;
  for (const SocketAddress& one : *chosen)
    if (!one.isLinkLocal() && !one.isLoopback()) texts.push_back(one.ipText());
  return texts;
}

Weight weightOf(const std::string& name) {
  for (const Weight& weight : kWeights)
    if (weight.name == name) return weight;
  return {"", Severity::note, ""};
}

// All that a rank has to say, as long as the longest of them: the exchange wants equal lengths. A rank that
// claims more than any host has to say is refused, before there is room for it.
Result<std::vector<std::string>> gatherTexts(netdriver::Bootstrap& bootstrap, const std::string& mine) {
  TRY(const auto sizes, bootstrap.gatherValues(static_cast<uint64_t>(mine.size())));
  const auto longest = std::max_element(sizes.begin(), sizes.end());
  if (*longest > kMostLetter)
    return Error(
        Code::remote, "--all",
        fmt::format("rank {} announces {} bytes, and no report is longer than {}: start all ranks with "
                    "this version of weft",
                    longest - sizes.begin(), *longest, kMostLetter));
  const size_t most = *longest;
  std::string padded = mine;
  padded.resize(std::max<size_t>(most, 1));
  std::string all(padded.size() * sizes.size(), '\0');
  TRY(bootstrap.allGather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all))));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); rank++)
    texts.push_back(all.substr(rank * padded.size(), sizes[rank]));
  return texts;
}

// A node, its probe's port behind it.
struct Guest {
  Node node;
  uint16_t port = 0;
};

Findings probeOthers(const std::vector<Guest>& guests, size_t self, double seconds) {
  Findings found;
  for (size_t i = 1; i < std::min(guests.size(), kMostProbed + 1); i++) {
    const Guest& other = guests[(self + i) % guests.size()];
    for (const std::string& ip : other.node.addresses) {
      const auto at =
          resolve(fmt::format("{}:{}", ip.find(':') == std::string::npos ? ip : "[" + ip + "]", other.port),
                  Resolving::toDial);
      if (at) found.push_back(probeResponder(other.node.host, at->front(), seconds));
    }
  }
  return found;
}

// The ranks that speak for their hosts: the lowest of each.
std::vector<size_t> speakers(const std::vector<std::string>& hosts) {
  std::vector<size_t> found;
  std::set<std::string> seen;
  for (size_t rank = 0; rank < hosts.size(); rank++)
    if (seen.insert(hosts[rank]).second) found.push_back(rank);
  return found;
}

// Containers of one machine are hosts of their own where their network namespaces differ.
std::string identityOfHost(const World& world) {
  return fmt::format("{} {} {}", hostName(), world.line("/proc/sys/kernel/random/boot_id"),
                     world.resolved("/proc/self/ns/net"));
}

}  // namespace

Fingerprint fingerprintOf(const World& world) {
  utsname names{};
  (void)::uname(&names);
  std::set<std::string> interfaces;
  std::set<std::string> sizes;
  if (const auto all = world.addresses())
    for (const HostAddress& one : *all)
      if (!one.loopback && !world.resolved("/sys/class/net/" + one.interface + "/device").empty()) {
        interfaces.insert(one.interface);
        sizes.insert(world.line("/sys/class/net/" + one.interface + "/mtu"));
      }
  return {{"weft", versionText()},
          {"kernel", names.release},
          {"NCCL", ncclText()},
          {"RDMA cards", cardsText(world)},
          {"interfaces", fmt::format("{}", fmt::join(interfaces, ", "))},
          {"MTU", fmt::format("{}", fmt::join(sizes, ", "))},
          {"processors", world.line("/sys/devices/system/cpu/online")},
          {"settings of weft", settingsText(world, "WEFT_")},
          {"settings of NCCL", settingsText(world, "NCCL_")}};
}

Findings compare(const std::vector<Node>& nodes) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> values;
  std::map<std::string, std::vector<std::string>> owners;
  for (const Node& node : nodes) {
    for (const auto& [name, value] : node.fingerprint) values[name][value].push_back(node.host);
    for (const std::string& address : node.addresses) owners[address].push_back(node.host);
  }
  Findings found;
  for (const auto& [name, byValue] : values) {
    if (byValue.size() < 2) continue;
    std::string evidence;
    for (const auto& [value, hosts] : byValue) {
      const size_t named = std::min<size_t>(hosts.size(), 4);
      evidence +=
          fmt::format("{}\"{}\" on {}{}", evidence.empty() ? "" : "; ", value,
                      fmt::join(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                      hosts.size() > named ? fmt::format(" and {} more", hosts.size() - named) : "");
    }
    const Weight weight = weightOf(name);
    found.push_back(
        {weight.severity, kBetween, name, evidence, *weight.mend != '\0' ? byHand(weight.mend) : Mend{}});
  }
  for (const auto& [address, hosts] : owners)
    if (hosts.size() > 1)
      found.push_back({Severity::error, kBetween, address,
                       fmt::format("{} hosts have this address: {}", hosts.size(), fmt::join(hosts, ", ")),
                       bySetting("WEFT_SOCKET_IFNAME=^NAME of that interface")});
  if (found.empty())
    found.push_back(
        {Severity::fine, kBetween, "what they are", fmt::format("{} hosts, all the same", nodes.size()), {}});
  return found;
}

Result<std::vector<HostReport>> lookEverywhere(const Options& options,
                                               const std::function<HostReport()>& lookHere) {
  TRY(const netdriver::Place place, perf::findPlace({}));
  if (place.size == 0)
    return Error(Code::invalidArgument, "--all",
                 "nothing says which rank this is: start it by srun, mpirun or torchrun, one rank a host; "
                 "--hosts A,B probes from here alone");
  TRY(const Config config, readConfigFromEnvironment());
  TRY(const PortRange ports, parsePortRange(config.portRange));
  TRY(const auto bootstrap, netdriver::Bootstrap::create(place, kTogether));
  const World world = thisWorld();
  TRY(const auto hosts, gatherTexts(*bootstrap, identityOfHost(world)));
  const std::vector<size_t> speaking = speakers(hosts);
  const auto me = static_cast<size_t>(bootstrap->rank());
  const auto mine = std::find(speaking.begin(), speaking.end(), me);
  const bool speaks = mine != speaking.end();

  HostReport report;
  std::unique_ptr<Responder> responder;
  Guest self;
  if (speaks) {
    report = lookHere();
    TRY(responder, Responder::start(ports));
    self = {{report.host, fingerprintOf(world), addressesOf(config.socketIfname)}, responder->port()};
  }
  TRY(const auto nodes, gatherTexts(*bootstrap, nodeLetter(self.node, self.port)));
  std::vector<Guest> guests;
  for (const size_t rank : speaking) {
    Guest guest;
    if (!readNode(nodes[rank], &guest.node, &guest.port))
      return Error(Code::remote, "--all",
                   fmt::format("rank {} runs another version of weft, and was not understood", rank));
    guests.push_back(std::move(guest));
  }
  if (speaks) {
    Findings paths = probeOthers(guests, static_cast<size_t>(mine - speaking.begin()), options.seconds);
    report.findings.insert(report.findings.end(), paths.begin(), paths.end());
  }
  TRY(const auto reports, gatherTexts(*bootstrap, reportLetter(report)));
  std::vector<HostReport> all;
  if (me != 0) return all;
  std::vector<Node> compared;
  for (const Guest& guest : guests) compared.push_back(guest.node);
  for (const size_t rank : speaking) all.push_back(rank == me ? report : readReport(reports[rank]));
  all.push_back({kBetween, compare(compared)});
  return all;
}

}  // namespace weft::doctor
