// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstring>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "providers/tcp/transport.h"
#include "providers/tcp/wire.h"
#include "src/base/fd.h"
#include "src/base/net/sockets.h"
#include "tests/support/catch.h"
#include "tests/support/seam_end.h"

// Helpers for tests of the tcp provider: what a stranger, or a peer that keeps no rule, can do at its port.
// One thread.
namespace weft::test {

// The loopback interface: every machine has it, and nobody takes it away while a test runs.
inline Config tcpConfig(int streams = 2) {
  Config config;
  config.socketIfname = "=lo";
  config.closeTimeout = Milliseconds(300);
  config.connectTimeout = Milliseconds(3000);
  config.tcpStreams = streams;
  return config;
}

inline tcp::LaneAddress addressOf(const SeamEnd& end) {
  auto address = tcp::decodeLaneAddress(end.lane->address());
  REQUIRE(address);
  return address.take();
}

inline Fd dialTo(const tcp::LaneAddress& address) {
  const SocketAddress to = address.socket();
  Fd fd(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), to.raw(), to.length) == 0);
  return fd;
}

template <class T>
void sendRaw(const Fd& fd, const T& what) {
  (void)::send(fd.get(), &what, sizeof what, MSG_NOSIGNAL);
}

// Whether the other end has closed; what it said before is dropped.
inline bool isClosed(const Fd& fd) {
  std::array<std::byte, 256> dropped;
  for (;;) {
    const ssize_t got = ::recv(fd.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (got == 0) return true;
    if (got < 0) return errno != EAGAIN;
  }
}

inline size_t openDescriptors() {
  DIR* directory = ::opendir("/proc/self/fd");
  size_t count = 0;
  while (::readdir(directory)) count++;
  ::closedir(directory);
  return count;
}

// The nonce of the door at which `fd` stands.
inline Nonce readDoor(const Fd& fd, std::initializer_list<SeamEnd*> ends) {
  tcp::DoorBytes bytes{};
  Nonce nonce{};
  REQUIRE(pumpUntil(ends, [&] {
    const ssize_t got = ::recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_PEEK);
    return got == static_cast<ssize_t>(bytes.size());
  }));
  REQUIRE(::recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size()));
  REQUIRE(tcp::decodeDoor(bytes, &nonce));
  return nonce;
}

// A greeting as a peer says it that dials lane `to` and has lane `from`.
inline tcp::Hello helloOf(const tcp::LaneAddress& to, const tcp::LaneAddress& from, const Nonce& door,
                          uint8_t stream = 0) {
  const Protection protection;
  tcp::Hello hello;
  hello.lane = to.lane;
  hello.stream = stream;
  hello.nonce = freshNonce();
  const Bytes acceptor = tcp::encode(to), dialler = tcp::encode(from);
  const tcp::Greeting greeting{door, hello, acceptor, dialler};
  hello.claim = tcp::greetingTag(tcp::TagOf::claim, tcp::claimKey(protection, to.secret), greeting);
  hello.proof =
      tcp::greetingTag(tcp::TagOf::hello, tcp::greetingKey(protection, to.secret, from.secret), greeting);
  return hello;
}

// A lane of weft's whose peer is this test: it knows the secrets and speaks frames by hand.
struct RawPeer {
  explicit RawPeer(SeamEnd& to) : end(to) {
    mine = target = addressOf(end);
    std::memset(mine.ip.data(), 0, 4);  // lower than any: it is we who dial
    mine.port = 1;
    mine.secret.fill(std::byte{7});
    REQUIRE(end.lane->connect(tcp::encode(mine)));
    fd = dialTo(target);
    hello = tcp::encode(helloOf(target, mine, readDoor(fd, {&end})));
    sendRaw(fd, hello);
    REQUIRE(pumpUntil({&end}, [&] { return end.count(CompletionKind::connected, true) == 1; }));
  }
  void frame(tcp::FrameKind kind, uint32_t length, uint64_t key, uint64_t offset = 0) {
    tcp::FrameHeader header;
    header.kind = kind;
    header.length = length;
    header.key = key;
    header.offset = offset;
    sendRaw(fd, header);
  }

  // From then on the end looks at its door, as more streams are coming.
  void announceStreams(uint32_t number) {
    tcp::FrameHeader header;
    header.kind = tcp::FrameKind::streams;
    header.number = number;
    sendRaw(fd, header);
    pump({&end}, 10);
  }

  SeamEnd& end;
  tcp::LaneAddress target;
  tcp::LaneAddress mine;
  tcp::HelloBytes hello{};  // as it was sent
  Fd fd;
};

}  // namespace weft::test
