// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/identity.h"

#include <algorithm>
#include <cstdio>

namespace softefa {

namespace {

constexpr size_t kHostBegin = 8, kHostEnd = 12;  // where the host's name is in a GID, as a hash

uint32_t hashOf(const std::string& text) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char letter : text) hash = (hash ^ static_cast<uint8_t>(letter)) * 16777619U;
  return hash;
}

std::string defaultPci(unsigned nic) {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02x:1b.0", 0x10 * (nic + 1) & 0xff);
  return text;
}

// The kernel's names for EFA devices carry bus and slot in decimal.
std::string nameOf(const std::string& pci) {
  unsigned bus = 0, slot = 0;
  std::sscanf(pci.c_str(), "%*4x:%2x:%2x", &bus, &slot);
  char text[32];
  std::snprintf(text, sizeof text, "rdmap%us%u", bus, slot);
  return text;
}

}  // namespace

Gid gidOf(const std::string& host, unsigned nic) {
  Gid gid{{0xfe, 0x80, 0, 0, 0, 0, 0x5e, 0xfa}};
  const uint32_t hash = hashOf(host);
  for (size_t i = kHostBegin; i < kHostEnd; ++i)
    gid.bytes[i] = static_cast<uint8_t>(hash >> (8 * (i - kHostBegin)));
  gid.bytes[15] = static_cast<uint8_t>(nic + 1);
  return gid;
}

Identity identityOf(const Settings& settings, unsigned nic) {
  Identity identity;
  identity.gid = gidOf(settings.host, nic);
  identity.pci = nic < settings.pci.size() ? settings.pci[nic] : defaultPci(nic);
  identity.name = nameOf(identity.pci);
  if (nic < settings.numa.size()) identity.numa = settings.numa[nic];
  return identity;
}

bool sameHost(const Gid& a, const Gid& b) {
  return std::equal(a.bytes.begin() + kHostBegin, a.bytes.begin() + kHostEnd, b.bytes.begin() + kHostBegin);
}

std::string toHex(const Gid& gid) {
  std::string text;
  char digits[3];
  for (const uint8_t byte : gid.bytes) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

}  // namespace softefa
