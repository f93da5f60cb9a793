// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "providers/local/share_socket.h"
#include "src/base/random.h"
#include "tests/support/catch.h"

// A process of this host writes to the socket by which ranks hand each other GPU memory.
using namespace weft;
using namespace weft::local;

namespace {

size_t openFiles() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

// A datagram with so many descriptors beside it.
bool send(const Bytes& to, const Announcement& content, const std::vector<int>& descriptors) {
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, to.data(), to.size());
  Announcement copy = content;
  iovec bytes{&copy, sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + to.size());
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof copy);
}

}  // namespace

TEST_CASE("descriptors beyond the one that is due are closed, and their datagram is dropped") {
  auto socket = ShareSocket::open();
  REQUIRE(socket);
  Announcement announcement{};
  fillRandom(announcement.from);
  Nonce other{};
  fillRandom(other);
  const size_t before = openFiles();
  for (const size_t count : {2, 3, 16})
    for (const Nonce& sender : {announcement.from, other}) {
      REQUIRE(send(socket->name(), announcement, std::vector<int>(count, STDIN_FILENO)));
      CHECK_FALSE(socket->take(sender));
      CHECK(openFiles() == before);
    }
  REQUIRE(send(socket->name(), announcement, {STDIN_FILENO}));
  {
    const auto taken = socket->take(announcement.from);
    REQUIRE(taken);
    CHECK(taken->second);
  }
  CHECK(openFiles() == before);
}
