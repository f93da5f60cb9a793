// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "src/base/net/address.h"
#include "weft/result.h"

// The choice among this host's addresses that peers are told, and the use of the addresses that a peer tells.
// Pure functions; any thread.
namespace weft::control {

// The addresses to publish, in the order in which to try them: the first IPv4, the first IPv6, then the rest.
// `filter` is WEFT_SOCKET_IFNAME (src/base/name_filter.h). Without a filter, loopback and container bridges
// are left out unless nothing else is up. Link-local addresses are used only where there is nothing else. An
// error names the interfaces that are there.
Result<std::vector<SocketAddress>> chooseAddresses(const std::vector<Interface>& interfaces,
                                                   const std::string& filter);

// All of `first`, then those of `second` that are not among them.
std::vector<SocketAddress> joinAddresses(std::vector<SocketAddress> first,
                                         const std::vector<SocketAddress>& second);

// True where `address` is among `those`, whatever the ports.
bool isAmong(SocketAddress address, const std::vector<SocketAddress>& those);

// Those that no interface which is up has any more, in words for the end of a message: where a host is cut
// off, the fault may be on this side. Empty where none is missing.
std::string missingHere(const std::vector<SocketAddress>& published,
                        const std::vector<Interface>& interfaces);

// Gives a peer's link-local addresses the interface of our own first link-local address: without an interface
// they mean nothing, and the peer's interface names are not ours.
void fillScopes(std::vector<SocketAddress>& addresses, const std::vector<SocketAddress>& own);

}  // namespace weft::control
