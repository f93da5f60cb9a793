// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cerrno>

#include "tests/world/played_tcp.h"

// How processes of a world learn that a socket is ready: poll, and epoll. Functions of PlayedTcp.
namespace weft::world {

// poll.

bool PlayedTcp::canBeWritten(Socket& socket) {
  if (!settle(socket)) return false;
  const Ref other = socket.other.lock();
  return socket.error != 0 || socket.over || !other || !other->open || other->waiting < habits_.buffer;
}

// What is asked about is so.
bool PlayedTcp::holds(const pollfd& asked) {
  const Ref socket = find(asked.fd, "poll");
  if (!socket) return true;
  if (socket->state == State::listening)
    return !socket->backlog.empty() && socket->backlog.front()->standsAt <= now();
  return ((asked.events & POLLIN) != 0 && canBeRead(*socket)) ||
         ((asked.events & POLLOUT) != 0 && canBeWritten(*socket));
}

int PlayedTcp::countReady(std::span<pollfd> asked) {
  int ready = 0;
  for (pollfd& one : asked) {
    const bool here = one.fd >= 0 && holds(one);
    one.revents = here ? one.events : short{0};
    ready += here;
  }
  return ready;
}

// Looks less and less often, as no socket wakes anybody.
int PlayedTcp::poll(std::span<pollfd> asked, int milliseconds) {
  constexpr Nanoseconds kLongest = std::chrono::milliseconds(2);
  const TimePoint until = now() + std::chrono::milliseconds(milliseconds);
  for (Nanoseconds pause = std::chrono::microseconds(20);; pause = std::min(2 * pause, kLongest)) {
    const int ready = countReady(asked);
    if (ready > 0 || now() >= until) return ready;
    scheduler_.sleepUntil(std::min(now() + pause, until));
  }
}

// epoll, with EPOLLONESHOT.

int PlayedTcp::epollCreate() {
  if (!mayOpen()) return failWith(EMFILE);
  epolls_[++lastFd_] = {};
  return lastFd_;
}

int PlayedTcp::epollControl(int fd, int op, int of, const epoll_event* event) {
  const auto epoll = epolls_.find(fd);
  if (epoll == epolls_.end() || !find(of, "epoll_ctl")) return failWith(EBADF);
  const bool known = epoll->second.sockets.contains(of);
  if (known == (op == EPOLL_CTL_ADD)) return failWith(known ? EEXIST : ENOENT);
  epoll->second.armed.erase(of);
  if (op == EPOLL_CTL_DEL) return epoll->second.sockets.erase(of) > 0 ? 0 : -1;
  epoll->second.sockets[of] = *event;
  epoll->second.armed.insert(of);
  return 0;
}

bool PlayedTcp::canBeRead(Socket& socket) {
  if (!settle(socket)) return false;
  return arrived(socket) > 0 || socket.error != 0 || socket.over || socket.deaf ||
         (socket.fin && *socket.fin <= now());
}

int PlayedTcp::epollWait(int fd, std::span<epoll_event> events) {
  const auto epoll = epolls_.find(fd);
  if (epoll == epolls_.end()) return failWith(EBADF);
  std::vector<int> ready;
  for (const int armed : epoll->second.armed)
    if (ready.size() < events.size() && canBeRead(*sockets_.at(armed))) ready.push_back(armed);
  for (size_t i = 0; i < ready.size(); i++) {
    events[i] = epoll->second.sockets.at(ready[i]);
    events[i].events = EPOLLIN;
    epoll->second.armed.erase(ready[i]);
  }
  return static_cast<int>(ready.size());
}

}  // namespace weft::world
