// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/sockets.h"

#include <cerrno>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "src/base/log.h"

namespace weft::control {

namespace {

constexpr int kBacklog = 1024;
constexpr int kPortTries = 64;

Error listenError(const char* what, int errnum) {
  return Error(Code::system, "opening the control port", what, errnum);
}

void setFlag(int fd, int level, int option) {
  const int on = 1;
  (void)setsockopt(fd, level, option, &on, sizeof on);
}

SocketAddress anyAddress(int family, uint16_t port) {
  SocketAddress address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  address.setPort(port);
  return address;
}

Result<Fd> openListener(int family, uint16_t port) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return listenError("socket", errno);
  fd.closeInForkedChildren();
  if (family == AF_INET6) setFlag(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  const SocketAddress any = anyAddress(family, port);
  if (bind(fd.get(), any.raw(), any.length) != 0) return listenError("bind", errno);
  if (listen(fd.get(), kBacklog) != 0) return listenError("listen", errno);
  return fd;
}

uint16_t localPort(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  (void)getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address.port();
}

}  // namespace

Result<ListeningSockets> openListeners() {
  Error last = listenError("no free port", 0);
  for (int i = 0; i < kPortTries; i++) {
    ListeningSockets out;
    auto v4 = openListener(AF_INET, 0);
    if (v4) {
      out.port = localPort(v4->get());
      out.sockets.push_back(v4.take());
    }
    auto v6 = openListener(AF_INET6, out.port);
    if (v6) {
      out.port = localPort(v6->get());
      out.sockets.push_back(v6.take());
    }
    const bool portTaken = !v6 && v6.error().errnum() == EADDRINUSE;  // by someone else's IPv6 socket
    if (!out.sockets.empty() && !portTaken) return out;
    last = v6 ? listenError("bind", EADDRINUSE) : v6.takeError();
  }
  return last;
}

ConnectStart startConnect(const SocketAddress& address) {
  ConnectStart start;
  start.socket = Fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!start.socket) {
    start.error = errno;
    return start;
  }
  start.socket.closeInForkedChildren();
  setFlag(start.socket.get(), IPPROTO_TCP, TCP_NODELAY);
  if (connect(start.socket.get(), address.raw(), address.length) != 0 && errno != EINPROGRESS)
    start.error = errno;
  return start;
}

int connectError(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

Result<Fd> acceptOne(int listener) {
  Fd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return Error(Code::system, "accepting a control connection", "", errno);
  fd.closeInForkedChildren();
  setFlag(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  return fd;
}

IoResult receiveSome(int fd, std::span<std::byte> into) {
  const ssize_t n = recv(fd, into.data(), into.size(), 0);
  if (n > 0) return {Io::ok, static_cast<size_t>(n), 0};
  if (n == 0) return {Io::closed, 0, 0};
  if (errno == EAGAIN || errno == EINTR) return {Io::again, 0, 0};
  return {Io::closed, 0, errno};
}

IoResult sendSome(int fd, std::span<const std::byte> from) {
  const ssize_t n = send(fd, from.data(), from.size(), MSG_NOSIGNAL);
  if (n >= 0) return {Io::ok, static_cast<size_t>(n), 0};
  if (errno == EAGAIN || errno == EINTR) return {Io::again, 0, 0};
  return {Io::closed, 0, errno};
}

void cut(Fd& fd) {
  if (!fd) return;
  (void)shutdown(fd.get(), SHUT_RDWR);
  fd.reset();
}

SocketAddress remoteAddress(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    address.length = 0;
  return address;
}

void ExactReader::expect(size_t bytes) {
  buffer_.resize(bytes);
  have_ = 0;
}

IoResult ExactReader::fill(int fd) {
  while (have_ < buffer_.size()) {
    const IoResult got = receiveSome(fd, std::span(buffer_).subspan(have_));
    if (got.io != Io::ok) return got;
    have_ += got.bytes;
  }
  return {Io::ok, have_, 0};
}

}  // namespace weft::control
