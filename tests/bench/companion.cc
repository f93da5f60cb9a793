// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/bench/companion.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace weft::bench {

void die(const std::string& why) {
  std::fprintf(stderr, "bench-end: %s\n", why.c_str());
  _exit(1);
}

void must(const Status& status) {
  if (!status) die(status.error().message());
}

void watchdog(unsigned seconds) {
  ::alarm(seconds);
}

Companion Companion::start() {
  int up[2], down[2];
  if (::pipe(up) != 0 || ::pipe(down) != 0) die(std::string("no pipes: ") + std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) die(std::string("no second process: ") + std::strerror(errno));
  if (child > 0) {
    ::close(up[1]);
    ::close(down[0]);
    return {up[0], down[1], true};
  }
  ::close(up[0]);
  ::close(down[1]);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) _exit(1);  // it was gone before we could ask
  return {down[0], up[1], false};
}

void Companion::put(std::span<const std::byte> message) const {
  const uint64_t length = message.size();
  writeAll(&length, sizeof length);
  writeAll(message.data(), message.size());
}

void Companion::writeAll(const void* from, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(to_, static_cast<const char*>(from) + done, bytes - done);
    if (n < 0 && errno != EINTR) die(std::string("the other process is gone: ") + std::strerror(errno));
    if (n > 0) done += static_cast<size_t>(n);
  }
}

Bytes Companion::get() const {
  uint64_t length = 0;
  readAll(&length, sizeof length);
  Bytes message(length);
  readAll(message.data(), message.size());
  return message;
}

Bytes Companion::getBusily() const {
  pollfd readable{from_, POLLIN, 0};
  while (::poll(&readable, 1, 0) == 0) {
  }
  return get();
}

std::string Companion::getText() const {
  const Bytes message = get();
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

void Companion::readAll(void* to, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::read(from_, static_cast<char*>(to) + done, bytes - done);
    if (n == 0) _exit(1);  // the other process is gone and has said why
    if (n < 0 && errno != EINTR) die(std::string("reading from the other process: ") + std::strerror(errno));
    if (n > 0) done += static_cast<size_t>(n);
  }
}

}  // namespace weft::bench
