// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/gid.h"

#include <algorithm>
#include <arpa/inet.h>
#include <dirent.h>
#include <memory>

#include "src/base/log.h"
#include "src/base/number.h"
#include "src/topo/sysfs.h"

// Reading sysfs for addresses, and the rules of the choice.
namespace weft::verbs {

namespace {

constexpr const char* kChoosing = "choosing a GID";

// The numbers of a directory's entries, sorted.
std::vector<int> indexesIn(const std::string& directory) {
  std::vector<int> indexes;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(directory.c_str()), ::closedir);
  while (opened) {
    const dirent* entry = ::readdir(opened.get());
    if (!entry) break;
    if (const auto index = parseNumber<int>(entry->d_name)) indexes.push_back(*index);
  }
  std::sort(indexes.begin(), indexes.end());
  return indexes;
}

std::string describe(const GidEntry& entry) {
  return format("GID %d (%s, %s%s%s)", entry.index, gidText(entry.gid).c_str(),
                entry.type.empty() ? "InfiniBand" : entry.type.c_str(), entry.netdev.empty() ? "" : ", ",
                entry.netdev.c_str());
}

std::string describeAll(const std::vector<GidEntry>& table) {
  std::string text;
  for (const GidEntry& entry : table) text += (text.empty() ? "" : ", ") + describe(entry);
  return text.empty() ? "none" : text;
}

// The error lists the table, so that the user sees what there is.
Error noneFits(const std::vector<GidEntry>& table, const std::string& why) {
  return Error(Code::unavailable, kChoosing, why + "; its table has: " + describeAll(table));
}

Result<GidChoice> chosenByIndex(const std::vector<GidEntry>& table, int index) {
  for (const GidEntry& entry : table) {
    if (entry.index != index) continue;
    if (entry.nameable()) return GidChoice{{entry}, describe(entry) + ": named by WEFT_IB_GID_INDEX"};
    return noneFits(table,
                    format("WEFT_IB_GID_INDEX is %d; 255 is the last one that libibverbs can name", index));
  }
  return noneFits(table, format("WEFT_IB_GID_INDEX (or NCCL_IB_GID_INDEX) is %d, but that entry is empty: "
                                "unset it, or name one that has an address",
                                index));
}

const GidEntry* firstOf(const std::vector<GidEntry>& table, GidFamily family, const GidWish& wish) {
  const auto fits = [&](const GidEntry& entry) {
    const bool here = entry.netdev.empty() || !wish.reachable || wish.reachable(entry.netdev);
    return entry.routable() && entry.nameable() && entry.family() == family && here;
  };
  const auto found = std::find_if(table.begin(), table.end(), fits);
  return found == table.end() ? nullptr : &*found;
}

// A link-local address reaches this one link only, so it is used where there is no other of IPv6.
Result<GidChoice> chosenForRoce(const std::vector<GidEntry>& table, const GidWish& wish) {
  const GidEntry* v4 = firstOf(table, GidFamily::ipv4, wish);
  const GidEntry* v6 = firstOf(table, GidFamily::ipv6, wish);
  const GidEntry* local = firstOf(table, GidFamily::linkLocal, wish);
  if (!v6) v6 = local;
  if (!v4 && !v6) {
    return noneFits(table,
                    "the port has no RoCE v2 address in this network namespace: give its interface an IP "
                    "address and bring it up, or name an entry by WEFT_IB_GID_INDEX");
  }
  GidChoice choice;
  for (const GidEntry* entry : {v4, v6})
    if (entry) choice.entries.push_back(*entry);
  const char* why = v4            ? "the first RoCE v2 one with IPv4"
                    : v6 != local ? "no IPv4, the first RoCE v2 one with IPv6"
                                  : "only a link-local address, which no router forwards";
  choice.why = describe(choice.entries.front()) + ": " + why;
  if (v4 && v6) choice.why += format(" (peers without IPv4: GID %d)", v6->index);
  return choice;
}

}  // namespace

bool isZero(const Gid& gid) {
  return std::all_of(gid.begin(), gid.end(), [](uint8_t byte) { return byte == 0; });
}

GidFamily GidEntry::family() const {
  constexpr Gid kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (isZero(gid)) return GidFamily::none;
  if (std::equal(gid.begin(), gid.begin() + 12, kMapped.begin())) return GidFamily::ipv4;
  if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80) return GidFamily::linkLocal;
  return GidFamily::ipv6;
}

bool parseGid(const std::string& text, Gid* out) {
  return ::inet_pton(AF_INET6, text.c_str(), out->data()) == 1;
}

std::string gidText(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = GidEntry{.gid = gid}.family() == GidFamily::ipv4;
  ::inet_ntop(v4 ? AF_INET : AF_INET6, gid.data() + (v4 ? 12 : 0), text.data(), text.size());
  return text.data();
}

std::vector<GidEntry> readGidTable(const std::string& device, int port, std::vector<int> indexes,
                                   const std::string& root) {
  const std::string directory = root + "/class/infiniband/" + device + "/ports/" + std::to_string(port);
  std::vector<GidEntry> table;
  if (indexes.empty()) indexes = indexesIn(directory + "/gids");
  for (const int index : indexes) {
    const std::string number = "/" + std::to_string(index);
    GidEntry entry;
    entry.index = index;
    // Reading an empty slot fails with an error.
    if (!parseGid(topo::readLine(directory + "/gids" + number), &entry.gid) || isZero(entry.gid)) continue;
    entry.type = topo::readLine(directory + "/gid_attrs/types" + number);
    entry.netdev = topo::readLine(directory + "/gid_attrs/ndevs" + number);
    table.push_back(std::move(entry));
  }
  return table;
}

Result<GidChoice> chooseGids(const std::vector<GidEntry>& table, const GidWish& wish) {
  if (wish.ethernet) return wish.index >= 0 ? chosenByIndex(table, wish.index) : chosenForRoce(table, wish);
  if (table.empty() || !table.front().nameable())
    return noneFits(table, "the port has no GID yet: is a subnet manager running?");
  return GidChoice{{table.front()}, describe(table.front()) + ": the port's own"};
}

}  // namespace weft::verbs
