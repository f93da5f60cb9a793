// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "src/base/net/port_range.h"
#include "src/base/number.h"
#include "tools/doctor/checks.h"

// TCP ports: how many the kernel has left to give, whether those that WEFT_PORT_RANGE names are free, and how
// much a socket may hold.
namespace weft::doctor {

namespace {

constexpr const char* kPorts = "ports";

struct Range {
  int64_t first = 0;
  int64_t last = 0;
  int64_t count() const { return last - first + 1; }
  bool holds(int64_t port) const { return port >= first && port <= last; }
};

// Ports that sockets have here, of the tables of both families: "0: 0100007F:1F90 ...", in hexadecimal.
std::optional<std::set<int64_t>> usedPorts(const World& world) {
  std::set<int64_t> used;
  bool any = false;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto text = world.text(table);
    any = any || text.has_value();
    for (const std::string& row : lines(text.value_or(""))) {
      const std::vector<std::string> parts = words(row);
      if (parts.size() < 2) continue;
      const size_t colon = parts[1].rfind(':');
      if (colon == std::string::npos) continue;
      if (const auto port = parseNumber<int64_t>(std::string_view(parts[1]).substr(colon + 1), 16))
        used.insert(*port);
    }
  }
  if (!any) return std::nullopt;
  return used;
}

int64_t usedIn(const Range& range, const std::set<int64_t>& used) {
  return std::count_if(used.begin(), used.end(), [&](int64_t port) { return range.holds(port); });
}

}  // namespace

Findings ephemeralPorts(const World& world) {
  constexpr const char* kWhat = "ephemeral ports";
  constexpr int64_t kFew = 2000, kNone = 200, kWide = 16000;
  const std::vector<std::string> ends = words(world.line("/proc/sys/net/ipv4/ip_local_port_range"));
  const auto used = usedPorts(world);
  const auto first = ends.size() == 2 ? parseNumber<int64_t>(ends[0]) : std::nullopt;
  const auto last = ends.size() == 2 ? parseNumber<int64_t>(ends[1]) : std::nullopt;
  if (!used || !first || !last)
    return {
        {Severity::unknown, kPorts, kWhat, "the kernel's range or table of sockets cannot be read here", {}}};
  const Range range{*first, *last};
  const int64_t left = range.count() - usedIn(range, *used);
  const std::string seen = fmt::format("{} to {}, of which {} are left", range.first, range.last, left);
  const Mend wider = byRoot(Cure::morePorts);
  if (left < kNone)
    return {{Severity::error, kPorts, kWhat,
             seen + "; connections fail with \"address in use\" or \"cannot assign\"", wider}};
  if (left < kFew) return {{Severity::warning, kPorts, kWhat, seen, wider}};
  if (range.count() < kWide)
    return {{Severity::note, kPorts, kWhat, seen + "; a host with many ranks and peers uses more", wider}};
  return {{Severity::fine, kPorts, kWhat, seen, {}}};
}

// A process takes a port for its control link and one for each card over TCP; a daemon takes one more.
Findings pinnedPorts(const World& world) {
  constexpr const char* kWhat = "WEFT_PORT_RANGE";
  constexpr int64_t kEachRank = 4;
  const std::string* setting = world.setting(kWhat);
  if (!setting || setting->empty())
    return {{Severity::fine,
             kPorts,
             kWhat,
             "not set: listeners have ephemeral ports, and a firewall has to let all of them in",
             {}}};
  const auto parsed = parsePortRange(*setting);
  if (!parsed)
    return {{Severity::error, kPorts, kWhat, fmt::format("\"{}\" is no range of ports", *setting),
             bySetting("WEFT_PORT_RANGE=20000-20999")}};
  const Range range{parsed->first, parsed->last};
  const auto used = usedPorts(world);
  if (!used)
    return {{Severity::unknown, kPorts, kWhat, "the kernel's table of sockets cannot be read here", {}}};
  const int64_t left = range.count() - usedIn(range, *used);
  const int64_t need = kEachRank * ranksHere(world).value_or(8);
  const std::string seen =
      fmt::format("{} has {} ports, {} of them free; {} are enough for the ranks of this host", *setting,
                  range.count(), left, need);
  if (left < need)
    return {{Severity::error, kPorts, kWhat, seen,
             bySetting(fmt::format("WEFT_PORT_RANGE={}-{}", range.first,
                                   std::min<int64_t>(range.last + need * 4, 65535)))}};
  return {{Severity::fine, kPorts, kWhat, seen, {}}};
}

// The kernel's buffer for a connection bounds what is on its way: bandwidth times distance.
Findings socketBuffers(const World& world) {
  constexpr const char* kWhat = "socket buffers";
  constexpr int64_t kEnough = int64_t{4} << 20;
  Findings found;
  for (const char* name : {"tcp_rmem", "tcp_wmem"}) {
    const std::vector<std::string> parts = words(world.line(std::string("/proc/sys/net/ipv4/") + name));
    const auto most = parts.size() == 3 ? parseNumber<int64_t>(parts[2]) : std::nullopt;
    if (!most) {
      found.push_back({Severity::unknown, kPorts, name, "it cannot be read here", {}});
    } else if (*most < kEnough) {
      found.push_back({Severity::warning, kPorts, name,
                       fmt::format("a connection may hold {} at most, too little for a fast network",
                                   sizeText(static_cast<uint64_t>(*most))),
                       byRoot(Cure::socketBuffer, {name})});
    }
  }
  if (found.empty()) found.push_back({Severity::fine, kPorts, kWhat, "4 MiB or more for a connection", {}});
  return found;
}

}  // namespace weft::doctor
