// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/base/net/address.h"
#include "weft/transport.h"

// Which network interfaces of this host are devices. The choice is pure; only discoverNics() asks the kernel.
// Values; any thread.
namespace weft::tcp {

struct Nic {
  DeviceInfo info;
  bool speedKnown = false;  // the kernel or the user said it
  SocketAddress address;
};

struct Catalogue {
  std::vector<Nic> nics;
  std::vector<Refusal> refusals;
};

// A single entry for each interface, with its best address: IPv4, then IPv6, link-local last. WEFT_HCA counts
// where it names one of them, else WEFT_SOCKET_IFNAME does. Interfaces that reach no other host are left out
// unless they are named or there is nothing else; what is left out is told with the reason.
std::vector<Interface> chooseInterfaces(const std::vector<Interface>& all, const Config& config,
                                        std::vector<Refusal>* refusals);

Result<Catalogue> discoverNics(const Config& config);

}  // namespace weft::tcp
