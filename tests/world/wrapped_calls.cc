// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// The C library's functions of sockets and of shared memory, for programs that hold worlds: the linker's
// --wrap leads all calls of them here. A descriptor of a world is played, and any other one goes on to the
// library.
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/world/played_inboxes.h"
#include "tests/world/played_tcp.h"
#include "tests/world/refusals.h"

using weft::SocketAddress;
using weft::world::PlayedInboxes;
using weft::world::PlayedTcp;

namespace {

bool isPlayed(int fd) {
  return fd >= PlayedTcp::kFirst && PlayedTcp::running() != nullptr;
}

PlayedTcp& played() {
  return *PlayedTcp::running();
}

SocketAddress addressFrom(const sockaddr* from, socklen_t length) {
  SocketAddress address;
  __builtin_memcpy(&address.storage, from, length);
  address.length = length;
  return address;
}

int giveAddress(int fd, bool peers, sockaddr* to, socklen_t* length) {
  SocketAddress address;
  if (played().nameOf(fd, peers, &address) != 0) return -1;
  __builtin_memcpy(to, &address.storage, address.length);
  *length = address.length;
  return 0;
}

// A lock is asked for that a killed rank held.
bool isDropped(int fd, int command) {
  return command == F_OFD_GETLK && PlayedInboxes::running() && !PlayedInboxes::running()->ownerLives(fd);
}

int sayUnlocked(void* lock) {
  static_cast<struct flock*>(lock)->l_type = F_UNLCK;
  return 0;
}

// Interfaces of a played host: the list, and what it points to.
struct PlayedInterfaces {
  std::vector<weft::Interface> all;
  std::vector<ifaddrs> list;
};
PlayedInterfaces interfaces;

}  // namespace

extern "C" {

int __real_socket(int domain, int type, int protocol);
int __real_bind(int fd, const sockaddr* at, socklen_t length);
int __real_listen(int fd, int backlog);
int __real_connect(int fd, const sockaddr* to, socklen_t length);
int __real_accept4(int fd, sockaddr* from, socklen_t* length, int flags);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
ssize_t __real_send(int fd, const void* data, size_t bytes, int flags);
ssize_t __real_recv(int fd, void* data, size_t bytes, int flags);
ssize_t __real___recv_chk(int fd, void* data, size_t bytes, size_t room, int flags);
int __real_close(int fd);
int __real_shutdown(int fd, int how);
int __real_poll(pollfd* asked, nfds_t count, int milliseconds);
int __real_setsockopt(int fd, int level, int option, const void* value, socklen_t length);
int __real_getsockopt(int fd, int level, int option, void* value, socklen_t* length);
int __real_getsockname(int fd, sockaddr* to, socklen_t* length);
int __real_getpeername(int fd, sockaddr* to, socklen_t* length);
int __real_epoll_create1(int flags);
int __real_epoll_ctl(int fd, int op, int of, epoll_event* event);
int __real_epoll_wait(int fd, epoll_event* events, int count, int timeout);
int __real_getifaddrs(ifaddrs** list);
void __real_freeifaddrs(ifaddrs* list);
int __real_memfd_create(const char* name, unsigned flags);
int __real_fcntl(int fd, int command, ...);
int __real_fcntl64(int fd, int command, ...);

int __wrap_socket(int domain, int type, int protocol) {
  const weft::world::Granting kernel;
  const bool stream = (type & SOCK_STREAM) != 0 && (domain == AF_INET || domain == AF_INET6);
  return stream && PlayedTcp::running() ? played().socket() : __real_socket(domain, type, protocol);
}

int __wrap_bind(int fd, const sockaddr* at, socklen_t length) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? played().bind(fd, addressFrom(at, length)) : __real_bind(fd, at, length);
}

int __wrap_listen(int fd, int backlog) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? played().listen(fd) : __real_listen(fd, backlog);
}

int __wrap_connect(int fd, const sockaddr* to, socklen_t length) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? played().connect(fd, addressFrom(to, length)) : __real_connect(fd, to, length);
}

int __wrap_accept4(int fd, sockaddr* from, socklen_t* length, int flags) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? played().accept(fd) : __real_accept4(fd, from, length, flags);
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  const weft::world::Granting kernel;
  if (!isPlayed(fd)) return __real_sendmsg(fd, message, flags);
  return played().send(fd, {message->msg_iov, message->msg_iovlen});
}

ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  const weft::world::Granting kernel;
  if (!isPlayed(fd)) return __real_recvmsg(fd, message, flags);
  return played().receive(fd, {message->msg_iov, message->msg_iovlen}, (flags & MSG_PEEK) != 0);
}

ssize_t __wrap_send(int fd, const void* data, size_t bytes, int flags) {
  const weft::world::Granting kernel;
  if (!isPlayed(fd)) return __real_send(fd, data, bytes, flags);
  const iovec part{const_cast<void*>(data), bytes};
  return played().send(fd, {&part, 1});
}

ssize_t __wrap_recv(int fd, void* data, size_t bytes, int flags) {
  const weft::world::Granting kernel;
  if (!isPlayed(fd)) return __real_recv(fd, data, bytes, flags);
  const iovec part{data, bytes};
  return played().receive(fd, {&part, 1}, (flags & MSG_PEEK) != 0);
}

ssize_t __wrap___recv_chk(int fd, void* data, size_t bytes, size_t room, int flags) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? __wrap_recv(fd, data, bytes, flags) : __real___recv_chk(fd, data, bytes, room, flags);
}

// One that outlives its world, as that of a world which failed, is nobody's.
int __wrap_close(int fd) {
  const weft::world::Granting kernel;
  if (isPlayed(fd)) return played().close(fd);
  return fd >= PlayedTcp::kFirst ? 0 : __real_close(fd);
}

int __wrap_shutdown(int fd, int how) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? played().shutdown(fd, how) : __real_shutdown(fd, how);
}

// Of a process of a world they are all played. One that waits for none of them waits for the time to pass.
int __wrap_poll(pollfd* asked, nfds_t count, int milliseconds) {
  const weft::world::Granting kernel;
  const bool real = !PlayedTcp::running() || std::any_of(asked, asked + count, [](const pollfd& one) {
    return one.fd >= 0 && one.fd < PlayedTcp::kFirst;
  });
  return real ? __real_poll(asked, count, milliseconds) : played().poll({asked, count}, milliseconds);
}

int __wrap___poll_chk(pollfd* asked, nfds_t count, int milliseconds, size_t) {
  return __wrap_poll(asked, count, milliseconds);
}

int __wrap_setsockopt(int fd, int level, int option, const void* value, socklen_t length) {
  const weft::world::Granting kernel;
  if (!isPlayed(fd)) return __real_setsockopt(fd, level, option, value, length);
  return level == SOL_SOCKET && option == SO_LINGER ? played().lingerNot(fd) : 0;
}

int __wrap_getsockopt(int fd, int level, int option, void* value, socklen_t* length) {
  const weft::world::Granting kernel;
  if (!isPlayed(fd)) return __real_getsockopt(fd, level, option, value, length);
  if (level == SOL_SOCKET && option == SO_ERROR) return played().errorOf(fd, static_cast<int*>(value));
  if (level == IPPROTO_TCP && option == TCP_INFO && *length >= sizeof(tcp_info))
    return played().countsOf(fd, static_cast<tcp_info*>(value));
  errno = ENOPROTOOPT;
  return -1;
}

int __wrap_getsockname(int fd, sockaddr* to, socklen_t* length) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? giveAddress(fd, false, to, length) : __real_getsockname(fd, to, length);
}

int __wrap_getpeername(int fd, sockaddr* to, socklen_t* length) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? giveAddress(fd, true, to, length) : __real_getpeername(fd, to, length);
}

int __wrap_epoll_create1(int flags) {
  const weft::world::Granting kernel;
  return PlayedTcp::running() ? played().epollCreate() : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int fd, int op, int of, epoll_event* event) {
  const weft::world::Granting kernel;
  return isPlayed(fd) ? played().epollControl(fd, op, of, event) : __real_epoll_ctl(fd, op, of, event);
}

int __wrap_epoll_wait(int fd, epoll_event* events, int count, int timeout) {
  const weft::world::Granting kernel;
  if (!isPlayed(fd)) return __real_epoll_wait(fd, events, count, timeout);
  return played().epollWait(fd, {events, static_cast<size_t>(count)});
}

int __wrap_memfd_create(const char* name, unsigned flags) {
  const weft::world::Granting kernel;
  const int fd = __real_memfd_create(name, flags);
  if (fd >= 0 && PlayedInboxes::running()) PlayedInboxes::running()->made(fd);
  return fd;
}

int __wrap_fcntl(int fd, int command, ...) {
  const weft::world::Granting kernel;
  va_list more;
  va_start(more, command);
  void* argument = va_arg(more, void*);
  va_end(more);
  return isDropped(fd, command) ? sayUnlocked(argument) : __real_fcntl(fd, command, argument);
}

int __wrap_fcntl64(int fd, int command, ...) {
  const weft::world::Granting kernel;
  va_list more;
  va_start(more, command);
  void* argument = va_arg(more, void*);
  va_end(more);
  return isDropped(fd, command) ? sayUnlocked(argument) : __real_fcntl64(fd, command, argument);
}

int __wrap_getifaddrs(ifaddrs** list) {
  const weft::world::Granting kernel;
  if (!PlayedTcp::running()) return __real_getifaddrs(list);
  interfaces.all = played().interfaces();
  interfaces.list.assign(interfaces.all.size(), ifaddrs{});
  for (size_t i = 0; i < interfaces.all.size(); i++) {
    ifaddrs& one = interfaces.list[i];
    if (i > 0) interfaces.list[i - 1].ifa_next = &one;
    one.ifa_name = interfaces.all[i].name.data();
    one.ifa_flags = IFF_UP | IFF_RUNNING;
    one.ifa_addr = interfaces.all[i].address.raw();
  }
  *list = interfaces.list.empty() ? nullptr : interfaces.list.data();
  return 0;
}

void __wrap_freeifaddrs(ifaddrs* list) {
  const weft::world::Granting kernel;
  if (interfaces.list.empty() || list != interfaces.list.data()) __real_freeifaddrs(list);
}
}
