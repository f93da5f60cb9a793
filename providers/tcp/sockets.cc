// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/sockets.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>

namespace weft::tcp {

namespace {

constexpr int kBacklog = 1024;

// Probes keep a quiet stream known to what lies between the hosts. How long a silent host is waited for, the
// protocol decides: a stream must outlast every outage that WEFT_KERNEL_TIMEOUT forgives, and all the more
// the default of it, so the kernel gives one up after twenty minutes only. TCP_USER_TIMEOUT would also take a
// stopped peer for a dead one.
constexpr int kIdleSeconds = 10;
constexpr int kProbeSeconds = 10;
constexpr int kProbes = 120;

void set(int fd, int level, int option, int value) {
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

void tune(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

Fd openSocket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  fd.closeInForkedChildren();
  return fd;
}

SocketAddress withPort(SocketAddress address, uint16_t port) {
  if (address.family() == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
  return address;
}

Error failed(const char* what, const SocketAddress& address) {
  const int errnum = errno;
  const bool full = errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM;
  return Error(full ? Code::resources : Code::unavailable, what, ipText(address), errnum);
}

}  // namespace

SocketAddress socketAddress(const LaneAddress& address, uint32_t scope) {
  SocketAddress out;
  if (address.v6) {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(address.port);
    std::memcpy(&in6.sin6_addr, address.ip.data(), sizeof in6.sin6_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr)) in6.sin6_scope_id = scope;
    std::memcpy(&out.storage, &in6, sizeof in6);
    out.length = sizeof in6;
  } else {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.ip.data(), sizeof in.sin_addr);
    std::memcpy(&out.storage, &in, sizeof in);
    out.length = sizeof in;
  }
  return out;
}

uint32_t scopeOf(const SocketAddress& address) {
  if (address.family() != AF_INET6) return 0;
  return reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_scope_id;
}

void describe(const SocketAddress& from, LaneAddress* out) {
  out->v6 = from.family() == AF_INET6;
  if (out->v6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&from.storage);
    std::memcpy(out->ip.data(), &in6->sin6_addr, sizeof in6->sin6_addr);
    out->port = ntohs(in6->sin6_port);
  } else {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&from.storage);
    std::memcpy(out->ip.data(), &in->sin_addr, sizeof in->sin_addr);
    out->port = ntohs(in->sin_port);
  }
}

std::string ipText(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  LaneAddress lane;
  describe(address, &lane);
  const int family = lane.v6 ? AF_INET6 : AF_INET;
  return ::inet_ntop(family, lane.ip.data(), text.data(), text.size()) ? text.data() : "?";
}

Result<Fd> listenAt(const SocketAddress& interface, SocketAddress* bound) {
  Fd fd = openSocket(interface.family());
  if (!fd) return failed("opening a listening socket", interface);
  const SocketAddress anyPort = withPort(interface, 0);
  if (::bind(fd.get(), anyPort.raw(), anyPort.length) != 0)
    return failed("binding a listening socket", interface);
  if (::listen(fd.get(), kBacklog) != 0) return failed("listening for peers", interface);
  bound->length = sizeof bound->storage;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound->storage), &bound->length) != 0)
    return failed("asking for a listening socket's port", interface);
  return fd;
}

Fd acceptFrom(int listener) {
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return fd;
  fd.closeInForkedChildren();
  tune(fd.get());
  return fd;
}

Result<Fd> dial(const SocketAddress& from, const SocketAddress& to, int trafficClass) {
  Fd fd = openSocket(to.family());
  if (!fd) return failed("opening a socket to", to);
  tune(fd.get());
  setTrafficClass(fd.get(), to.family(), trafficClass);
  set(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  if (from.family() == to.family()) {
    const SocketAddress anyPort = withPort(from, 0);
    if (::bind(fd.get(), anyPort.raw(), anyPort.length) != 0) return failed("binding a socket", from);
  }
  if (::connect(fd.get(), to.raw(), to.length) != 0 && errno != EINPROGRESS)
    return failed("connecting to", to);
  return fd;
}

// What waits in the kernel then fits into a processor's cache beside the message itself: with the four
// megabytes that it takes otherwise, a stream of messages of 1 MiB and more cost both ends twice the time.
// Between hosts the kernel's own choice stays, as it follows the distance.
void keepShort(int fd) {
  constexpr int kBytes = 512 << 10;
  set(fd, SOL_SOCKET, SO_SNDBUF, kBytes);
}

void setTrafficClass(int fd, int family, int trafficClass) {
  if (trafficClass < 0) return;
  if (family == AF_INET6)
    set(fd, IPPROTO_IPV6, IPV6_TCLASS, trafficClass);
  else
    set(fd, IPPROTO_IP, IP_TOS, trafficClass);
}

}  // namespace weft::tcp
