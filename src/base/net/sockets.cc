// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/net/sockets.h"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "src/base/random.h"

// Options and calls of TCP sockets; the functions that wait are at the end.
namespace weft {

namespace {

// The kernel bounds it by net.core.somaxconn.
constexpr int kBacklog = 1024;
constexpr const char* kTalking = "talking over a connection";

// Options only make a connection better, so a refusal of one is ignored.
void set(int fd, int level, int option, int value) {
  (void)::setsockopt(fd, level, option, &value, sizeof value);
}

Result<Fd> openSocket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error(Code::resources, "opening a socket", {}, errno);
  fd.closeInForkedChildren();
  return fd;
}

// A lack of descriptors or memory belongs to this machine; any other error belongs to the address.
Error failed(const char* operation, const SocketAddress& address) {
  const int errnum = errno;
  const bool lack = errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM;
  return Error(lack ? Code::resources : Code::unavailable, operation, address.text(), errnum);
}

// TCP_USER_TIMEOUT (tcp(7)) would bound the time of a silent host as well, but it would also take a stopped
// peer for dead.
void tune(int fd, int family, const SocketTuning& tuning) {
  constexpr int kIdleSeconds = 10, kProbeSeconds = 10, kProbes = 120;
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (tuning.keepAlive) {
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  }
  setTrafficClass(fd, family, tuning.trafficClass);
}

// Looks again and again, with growing pauses of the deadline's clock: an answer across a network costs a few
// looks, and a silent end not many more. A wait in the kernel would pass by real time, whatever the clock.
Status await(int fd, short events, const Deadline& deadline) {
  constexpr Nanoseconds kFirst = std::chrono::microseconds(50), kLongest = std::chrono::milliseconds(5);
  for (Nanoseconds pause = kFirst;; pause = std::min(pause * 2, kLongest)) {
    pollfd one{fd, events, 0};
    if (::poll(&one, 1, 0) > 0) return {};
    if (deadline.isOver()) return Error(Code::timeout, kTalking, "the other end says nothing", ETIMEDOUT);
    deadline.clock.sleep(pause);
  }
}

// A port that the user named can be used again at once, although connections of an earlier process linger
// there.
Result<Fd> listenAt(const SocketAddress& at, const char* purpose, Hears hears) {
  TRY(Fd fd, openSocket(at.family()));
  if (at.family() == AF_INET6) set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, hears == Hears::itsFamily ? 1 : 0);
  if (at.port() != 0) set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), at.raw(), at.length) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return failed(purpose, at);
  return fd;
}

}  // namespace

// From a random port on, since the ranks of a host start at the same time and would all try the same ones.
Result<Fd> listenOn(const SocketAddress& at, const char* purpose, Hears hears, const PortRange& ports) {
  if (at.port() != 0 || ports.any()) return listenAt(at, purpose, hears);
  const auto count = static_cast<uint64_t>(ports.count());
  const uint64_t start = randomU64() % count;
  for (uint64_t i = 0; i < count; i++) {
    const auto port = static_cast<uint16_t>(ports.first + (start + i) % count);
    auto fd = listenAt(at.withPort(port), purpose, hears);
    if (fd || fd.error().errnum() != EADDRINUSE) return fd;
  }
  return Error(
      Code::resources, purpose,
      "every port of WEFT_PORT_RANGE=" + ports.text() + " is in use: widen it, or end what has them");
}

// IP_BIND_ADDRESS_NO_PORT leaves the choice of the port to connect(2), which has more ports to choose from.
Result<Fd> startConnecting(const SocketAddress& to, const SocketTuning& tuning, const SocketAddress* from) {
  TRY(Fd fd, openSocket(to.family()));
  tune(fd.get(), to.family(), tuning);
  if (from && from->family() == to.family()) {
    const SocketAddress anyPort = from->withPort(0);
    set(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (::bind(fd.get(), anyPort.raw(), anyPort.length) != 0) return failed("binding a socket to", *from);
  }
  if (::connect(fd.get(), to.raw(), to.length) != 0 && errno != EINPROGRESS)
    return failed("connecting to", to);
  return fd;
}

// 0: connected (SO_ERROR, socket(7)).
int connectError(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

Result<Fd> acceptOne(int listener, const SocketTuning& tuning) {
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return Error(Code::system, "accepting a connection", "", errno);
  fd.closeInForkedChildren();
  tune(fd.get(), AF_UNSPEC, tuning);
  return fd;
}

// The class is the byte of IPv4's TOS or IPv6's traffic class.
void setTrafficClass(int fd, int family, int trafficClass) {
  if (trafficClass < 0) return;
  if (family == AF_INET6)
    set(fd, IPPROTO_IPV6, IPV6_TCLASS, trafficClass);
  else
    set(fd, IPPROTO_IP, IP_TOS, trafficClass);
}

// Bounds the bytes that wait in the kernel, so that they fit into a processor's cache beside the message.
// With the four megabytes of the default, messages of 1 MiB and more cost both ends twice the time. Between
// hosts the kernel's own choice stays, as it follows the distance.
void keepShort(int fd) {
  constexpr int kBytes = 512 << 10;
  set(fd, SOL_SOCKET, SO_SNDBUF, kBytes);
}

SocketAddress localAddress(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, address.raw(), &address.length) != 0) address.length = 0;
  return address;
}

SocketAddress remoteAddress(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getpeername(fd, address.raw(), &address.length) != 0) address.length = 0;
  return address;
}

void cut(Fd& fd) {
  if (!fd) return;
  (void)::shutdown(fd.get(), SHUT_RDWR);
  fd.reset();
}

// Looks at a byte without taking it.
bool isLinked(int fd) {
  std::byte one;
  const ssize_t got = ::recv(fd, &one, sizeof one, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

IoResult receiveSome(int fd, std::span<std::byte> into) {
  const ssize_t n = ::recv(fd, into.data(), into.size(), MSG_DONTWAIT);
  if (n > 0) return {Io::ok, static_cast<size_t>(n), 0};
  if (n == 0) return {Io::closed, 0, 0};
  if (errno == EAGAIN || errno == EINTR) return {Io::again, 0, 0};
  return {Io::closed, 0, errno};
}

// MSG_NOSIGNAL: a closed connection is an error here, and not a SIGPIPE for the application.
IoResult sendSome(int fd, std::span<const std::byte> from) {
  const ssize_t n = ::send(fd, from.data(), from.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n >= 0) return {Io::ok, static_cast<size_t>(n), 0};
  if (errno == EAGAIN || errno == EINTR) return {Io::again, 0, 0};
  return {Io::closed, 0, errno};
}

void ExactReader::expect(size_t bytes) {
  buffer_.resize(bytes);
  have_ = 0;
}

// Reads until the expected bytes are here or the socket is empty.
IoResult ExactReader::fill(int fd) {
  while (have_ < buffer_.size()) {
    const IoResult got = receiveSome(fd, std::span(buffer_).subspan(have_));
    if (got.io != Io::ok) return got;
    have_ += got.bytes;
  }
  return {Io::ok, have_, 0};
}

// An address that stays silent takes the whole time, so the addresses behind it get a single look each.
Result<Fd> connectToOne(const std::vector<SocketAddress>& addresses, const Deadline& deadline) {
  const auto one = [&](const SocketAddress& address) -> Result<Fd> {
    TRY(Fd fd, startConnecting(address));
    TRY(await(fd.get(), POLLOUT, deadline));
    if (const int error = connectError(fd.get()); error != 0)
      return Error(Code::remote, "connecting to", address.text(), error);
    return fd;
  };
  Result<Fd> fd = Error(Code::config, "connecting", "there is no address");
  for (const SocketAddress& address : addresses) {
    fd = one(address);
    if (fd) break;
  }
  return fd;
}

Status sendAll(int fd, std::span<const std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const IoResult sent = sendSome(fd, bytes);
    if (sent.io == Io::closed) return Error(Code::remote, kTalking, "the connection broke", sent.error);
    if (sent.io == Io::again) TRY(await(fd, POLLOUT, deadline));
    bytes = bytes.subspan(sent.bytes);
  }
  return {};
}

Status receiveAll(int fd, ExactReader& reader, const Deadline& deadline) {
  while (true) {
    const IoResult got = reader.fill(fd);
    if (got.io == Io::ok) return {};
    if (got.io == Io::closed && got.error == 0)
      return Error(Code::remote, kTalking, "the other end closed the connection");
    if (got.io == Io::closed) return Error(Code::remote, kTalking, "the connection broke", got.error);
    TRY(await(fd, POLLIN, deadline));
  }
}

}  // namespace weft
