// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plain_sockets/address.h"

#include <fstream>
#include <ifaddrs.h>
#include <net/if.h>

namespace weft::baseline {

namespace {

constexpr unsigned kUp = IFF_UP | IFF_RUNNING;

int speedOf(const std::string& name) {
  std::ifstream file("/sys/class/net/" + name + "/speed");
  int speed = 0;
  return file >> speed && speed > 0 ? speed : Interface().speedMbps;
}

Interface loopback() {
  Interface found;
  found.name = "lo";
  found.address.sin_family = AF_INET;
  found.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return found;
}

Interface choose() {
  Interface found = loopback();
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & kUp) != kUp || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    found.name = one->ifa_name;
    found.address = *reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    found.speedMbps = speedOf(found.name);
    break;
  }
  freeifaddrs(all);
  found.address.sin_port = 0;
  return found;
}

}  // namespace

const Interface& chosenInterface() {
  static const Interface chosen = choose();
  return chosen;
}

}  // namespace weft::baseline
