// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "src/base/net/address.h"
#include "weft/result.h"

// Which of this host's addresses peers are told, and which of a peer's lead where. Pure; any thread.
namespace weft::control {

// The addresses to publish, in the order to try: the first IPv4, the first IPv6, then the rest. `filter` is
// WEFT_SOCKET_IFNAME (src/base/name_filter.h). Unset, loopback and container bridges are left out unless
// nothing else is up; link-local addresses are used only where there is nothing else.
Result<std::vector<SocketAddress>> chooseAddresses(const std::vector<Interface>& interfaces,
                                                   const std::string& filter);

// The first ones, then those of the second that are not among them.
std::vector<SocketAddress> joinAddresses(std::vector<SocketAddress> first,
                                         const std::vector<SocketAddress>& second);

// True for one of them, whatever the ports.
bool isAmong(SocketAddress address, const std::vector<SocketAddress>& those);

// Gives a peer's link-local addresses the interface of our own first one: they mean nothing without, and the
// peer's interface names are not ours.
void fillScopes(std::vector<SocketAddress>& addresses, const std::vector<SocketAddress>& own);

}  // namespace weft::control
