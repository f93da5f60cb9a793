// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "tests/softefa/settings.h"

namespace softefa {

// Address of one NIC of one virtual host; the same bytes as ibv_gid::raw.
struct Gid {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Gid&) const = default;
};

// What names one NIC of this host. NICs count from 0.
struct Identity {
  Gid gid;
  std::string name;  // of the device, as in rdmap16s27
  std::string pci;
  int numa = -1;
};

Identity identityOf(const Settings& settings, unsigned nic);
Gid gidOf(const std::string& host, unsigned nic);

// Do both belong to NICs of one host?
bool sameHost(const Gid& a, const Gid& b);
std::string toHex(const Gid& gid);

}  // namespace softefa
