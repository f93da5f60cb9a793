// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/result.h"

// A port's addresses (GIDs), and the choice among them. The kernel's table is read from sysfs
// (Documentation/ABI/stable/sysfs-class-infiniband): that works with every version of the library, tells the
// interface of an entry, and can be tested on files. Off the data path; any thread.
namespace weft::verbs {

using Gid = std::array<uint8_t, 16>;

enum class GidFamily : uint8_t { none, ipv4, ipv6, linkLocal };

struct GidEntry {
  int index = 0;
  Gid gid{};
  std::string type;    // "RoCE v2", "IB/RoCE v1"
  std::string netdev;  // the entry's interface; empty: not told

  GidFamily family() const;
  bool routable() const { return type == "RoCE v2"; }
  bool nameable() const { return index <= 255; }  // libibverbs has 8 bits for the index
};

bool isZero(const Gid& gid);
bool parseGid(const std::string& text, Gid* out);  // eight groups of four hexadecimal digits, as sysfs has it
std::string gidText(const Gid& gid);               // "10.99.0.1", "fd99::1"

// The entries that hold an address, in the table's order: those of `indexes`, or of the whole table where
// `indexes` is empty. The whole table is slow: some cards have a thousand slots. `root` is "/sys" except in
// tests.
std::vector<GidEntry> readGidTable(const std::string& device, int port, std::vector<int> indexes = {},
                                   const std::string& root = "/sys");

// The addresses that a port announces to its peers: at most one of each family, so that both ends find a
// family in common.
struct GidChoice {
  std::vector<GidEntry> entries;  // best first; one or two
  std::string why;                // "GID 1 (10.99.0.1, RoCE v2, rail0): the first with IPv4"
};

struct GidWish {
  bool ethernet = true;
  int index = -1;                                            // of RoCE; -1: choose
  std::function<bool(const std::string& netdev)> reachable;  // the interface is in our network namespace
};

// Code::unavailable with the next step where no entry will do.
Result<GidChoice> chooseGids(const std::vector<GidEntry>& table, const GidWish& wish);

}  // namespace weft::verbs
