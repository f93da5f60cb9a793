// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plain_sockets/connection.h"

#include <cerrno>
#include <cstring>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "tools/plain_sockets/address.h"
#include "tools/plain_sockets/log.h"

namespace weft::baseline {

namespace {

constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

ncclResult_t failed(const char* call) {
  return complain(ncclSystemError, "%s: %s", call, std::strerror(errno));
}

const sockaddr* generic(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Every message leaves at once.
void setUp(int socket) {
  const int on = 1;
  (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

ncclResult_t Listening::create(Handle* handle, std::unique_ptr<Listening>* listening) {
  auto made = std::make_unique<Listening>();
  if (getrandom(&made->cookie_, sizeof made->cookie_, 0) != sizeof made->cookie_) return failed("getrandom");
  made->socket_ = Fd(::socket(AF_INET, kType, 0));
  if (!made->socket_) return failed("socket");
  handle->address = chosenInterface().address;
  if (::bind(made->socket_.get(), generic(handle->address), sizeof handle->address) != 0)
    return failed("bind");
  if (::listen(made->socket_.get(), SOMAXCONN) != 0) return failed("listen");
  socklen_t length = sizeof handle->address;
  if (::getsockname(made->socket_.get(), reinterpret_cast<sockaddr*>(&handle->address), &length) != 0)
    return failed("getsockname");
  handle->cookie = made->cookie_;
  handle->connecting = nullptr;
  *listening = std::move(made);
  return ncclSuccess;
}

ncclResult_t Listening::accept(Fd* socket) {
  if (!candidate_) {
    candidate_ = Fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!candidate_) return errno == EAGAIN || errno == EINTR ? ncclSuccess : failed("accept");
    setUp(candidate_.get());
  }
  // The cookie is one segment; as long as less of it is there, nothing is.
  uint64_t cookie = 0;
  const ssize_t there = ::recv(candidate_.get(), &cookie, sizeof cookie, MSG_PEEK);
  if (there < 0 && (errno == EAGAIN || errno == EINTR)) return ncclSuccess;
  if (there > 0 && static_cast<size_t>(there) < sizeof cookie) return ncclSuccess;
  if (there != sizeof cookie || cookie != cookie_) {
    candidate_.reset();  // a stranger
    return ncclSuccess;
  }
  if (::recv(candidate_.get(), &cookie, sizeof cookie, 0) != sizeof cookie) return failed("recv");
  *socket = std::move(candidate_);
  return ncclSuccess;
}

ncclResult_t Connecting::create(const Handle& handle, std::unique_ptr<Connecting>* connecting) {
  auto made = std::make_unique<Connecting>();
  made->cookie_ = handle.cookie;
  made->socket_ = Fd(::socket(AF_INET, kType, 0));
  if (!made->socket_) return failed("socket");
  setUp(made->socket_.get());
  if (::connect(made->socket_.get(), generic(handle.address), sizeof handle.address) != 0 &&
      errno != EINPROGRESS)
    return failed("connect");
  *connecting = std::move(made);
  return ncclSuccess;
}

ncclResult_t Connecting::finish(Fd* socket) {
  pollfd writable{socket_.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) return ncclSuccess;
  socklen_t length = sizeof(int);
  int error = 0;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return failed("getsockopt");
  if (error != 0) return complain(ncclRemoteError, "connect: %s", std::strerror(error));
  if (::send(socket_.get(), &cookie_, sizeof cookie_, MSG_NOSIGNAL) != sizeof cookie_) return failed("send");
  *socket = std::move(socket_);
  return ncclSuccess;
}

}  // namespace weft::baseline
