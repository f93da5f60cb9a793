// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/descriptors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "src/base/number.h"
#include "src/base/reserve.h"

// Finding libfabric's descriptors by /proc/self/fd, and changing their flags.
namespace weft::ofi {

namespace {

constexpr timeval kReadLimit{0, 20'000};
constexpr uint8_t kEstablished = 1;  // of netinet/tcp.h, which does not go together with linux/tcp.h

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// Ascending, without the descriptor that reads the list. Empty where /proc is not mounted.
std::vector<int> openDescriptors() {
  std::vector<int> found;
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir("/proc/self/fd"));
  while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
    const auto fd = parseNumber<int>(entry->d_name);  // nothing for "." and ".."
    if (fd && *fd != ::dirfd(directory.get())) found.push_back(*fd);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void closeOnExec(int fd) {
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags >= 0 && (flags & FD_CLOEXEC) == 0) (void)::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}

bool libfabricMakesThese(int fd) {
  std::array<char, 64> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  const std::string_view kind(target.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return kind.starts_with("socket:") || kind.starts_with("pipe:") || kind.starts_with("anon_inode:[event");
}

using NameCall = int(int, sockaddr*, socklen_t*);

bool named(NameCall* ask, int fd, std::span<const Bytes> names) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return ask(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
         std::any_of(names.begin(), names.end(), [&](const Bytes& name) {
           return length == name.size() && std::memcmp(&address, name.data(), length) == 0;
         });
}

bool listens(int fd) {
  int listening = 0;
  socklen_t length = sizeof listening;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && listening != 0;
}

// Nothing was received: libfabric's first message tells it which peer the connection belongs to.
bool saidNothing(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == kEstablished &&
         info.tcpi_bytes_received == 0;
}

}  // namespace

ClosedOnExec::ClosedOnExec() : before_(openDescriptors()) {}

ClosedOnExec::~ClosedOnExec() {
  const MustNotFail closing;
  for (const int fd : openDescriptors()) {
    if (!std::binary_search(before_.begin(), before_.end(), fd) && libfabricMakesThese(fd)) closeOnExec(fd);
  }
}

void closeConnectionsOnExec(std::span<const Bytes> own, std::span<const Bytes> peers) {
  for (const int fd : openDescriptors()) {
    if (named(::getsockname, fd, own) || named(::getpeername, fd, peers)) closeOnExec(fd);
  }
}

size_t protectListeners(std::span<const Bytes> names) {
  size_t found = 0;
  for (const int fd : openDescriptors()) {
    if (!listens(fd) || !named(::getsockname, fd, names)) continue;
    found += ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kReadLimit, sizeof kReadLimit) == 0;
  }
  return found;
}

size_t turnSilentAway(std::span<const Bytes> names) {
  size_t found = 0;
  for (const int fd : openDescriptors()) {
    if (!named(::getsockname, fd, names)) continue;
    const bool listener = listens(fd);
    if (!listener && !saidNothing(fd)) continue;
    (void)::shutdown(fd, SHUT_RDWR);
    found += !listener;
  }
  return found;
}

}  // namespace weft::ofi
