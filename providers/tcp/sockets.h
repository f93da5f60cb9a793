// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <sys/socket.h>

#include "providers/tcp/wire.h"
#include "src/base/fd.h"
#include "weft/result.h"

// The few socket calls a lane needs. Every socket is non-blocking, closed by exec and in forked children, and
// raises no SIGPIPE. No state; any thread.
namespace weft::tcp {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// `scope`: the interface of a link-local address, which is our own matter and not in the lane's address.
SocketAddress socketAddress(const LaneAddress& address, uint32_t scope);
uint32_t scopeOf(const SocketAddress& address);
// Fills ip, family and port.
void describe(const SocketAddress& from, LaneAddress* out);
std::string ipText(const SocketAddress& address);

// On the interface's own address, at a free port; `bound` is told where.
Result<Fd> listenAt(const SocketAddress& interface, SocketAddress* bound);
// An empty Fd when none waits.
Fd acceptFrom(int listener);
// From the interface's own address, so that it leaves by that interface. It may not stand yet: what is sent
// before waits, and what is wrong is told then.
Result<Fd> dial(const SocketAddress& from, const SocketAddress& to, int trafficClass);
void keepShort(int fd);  // for connections within one host
void setTrafficClass(int fd, int family, int trafficClass);

}  // namespace weft::tcp
