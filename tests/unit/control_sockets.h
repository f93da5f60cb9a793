// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdlib>
#include <dirent.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/bytes.h"
#include "src/base/fd.h"
#include "src/base/net/sockets.h"
#include "tests/support/catch.h"

// Raw sockets for the tests of control links: strangers, impostors, and a pair of scissors for links of this
// process.
namespace weft::control {

inline std::vector<int> openDescriptors() {
  std::vector<int> out;
  DIR* directory = opendir("/proc/self/fd");
  if (!directory) return out;
  while (const dirent* entry = readdir(directory)) {
    const int fd = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(directory)) out.push_back(fd);
  }
  closedir(directory);
  return out;
}

inline uint16_t portOf(int fd, bool remote) {
  const SocketAddress address = remote ? remoteAddress(fd) : localAddress(fd);
  return address.length > 0 ? address.port() : 0;
}

// Breaks every connection of this process that leads to or from `port`, as a network would. Returns how many
// ends. The hub's thread may close the same descriptor at any time, which is no error here.
inline int cutLinks(uint16_t port) {
  int cut = 0;
  for (const int fd : openDescriptors()) {
    const uint16_t remote = portOf(fd, true);
    if (remote == 0 || (remote != port && portOf(fd, false) != port)) continue;
    if (syscall(SYS_shutdown, fd, SHUT_RDWR) == 0) cut++;
  }
  return cut;
}

inline Fd connectTo(const SocketAddress& address) {
  Fd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd && ::connect(fd.get(), address.raw(), address.length) != 0) fd.reset();
  return fd;
}

// A socket that listens on loopback; `address` gets its port.
inline Fd listenRaw(SocketAddress* address) {
  *address = SocketAddress::loopback();
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(fd.get(), address->raw(), address->length) == 0);
  REQUIRE(::listen(fd.get(), 16) == 0);
  address->setPort(portOf(fd.get(), false));
  return fd;
}

// Exactly n bytes, or fewer where the other side closes or stays silent for 5 s.
inline Bytes readExactly(int fd, size_t n) {
  const timeval limit{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  Bytes out(n);
  const ssize_t got = recv(fd, out.data(), n, MSG_WAITALL);
  out.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return out;
}

}  // namespace weft::control
