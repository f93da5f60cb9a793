// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/tcp/raw_peer.h"

// Who reaches the port and is not the peer, or is the peer and keeps no rule.
using namespace weft;
using namespace weft::test;
using enum CompletionKind;
using tcp::FrameKind;

namespace {

uint64_t keyOf(const SeamEnd& end) {
  auto memory = end.lane->import(end.memory->blob());
  REQUIRE(memory);
  return memory->key;
}

}  // namespace

TEST_CASE("tcp: strangers are turned away and keep nobody from connecting") {
  const int kind = GENERATE(0, 1, 2, 3, 4, 5);
  auto transport = tcp::makeTransport(tcpConfig());
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  std::vector<Fd> strangers;
  for (SeamEnd* end : {&a, &b}) {
    end->connectTo(end == &a ? b : a);  // from now on it looks at its door
    const tcp::LaneAddress address = addressOf(*end);
    Fd stranger = dialTo(address);
    const Nonce door = readDoor(stranger, {end});
    tcp::LaneAddress another = address;  // a lane that is not the peer's
    another.secret[0] ^= std::byte{1};
    tcp::Hello hello = helloOf(address, another, door);
    if (kind == 1)
      sendRaw(stranger, "GET / HTTP/1.1\r\nHost: this is longer than any greeting that is of ours\r\n\r\n");
    if (kind == 2) hello.claim[3] ^= std::byte{1};
    if (kind == 3) hello.lane = 4711;
    if (kind == 5) hello = helloOf(address, another, freshNonce());
    if (kind >= 2) sendRaw(stranger, tcp::encode(hello));  // 4: it was given the address, and is not the peer
    strangers.push_back(std::move(stranger));
  }
  REQUIRE(
      pumpUntil({&a, &b}, [&] { return a.count(connected, true) == 1 && b.count(connected, true) == 1; }));
  a.importFrom(b);
  REQUIRE(a.post(a.work(Opcode::writeNotify, 0, 0, 100)));
  REQUIRE(pumpUntil({&a, &b}, [&] { return b.count(notified) == 1; }));
  for (const Fd& stranger : strangers)  // who says nothing has three seconds
    CHECK(pumpUntil({&a, &b}, [&] { return isClosed(stranger); }));
  CHECK(a.count(broken) + b.count(broken) == 0);
}

TEST_CASE("tcp: a greeting that was overheard opens nothing, whatever stream it names, and ends nothing") {
  auto transport = tcp::makeTransport(tcpConfig(4));
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  peer.announceStreams(4);
  const int kind = GENERATE(range(0, 5));
  CAPTURE(kind);
  Fd again = dialTo(peer.target);
  const Nonce door = readDoor(again, {&end});
  tcp::HelloBytes words = peer.hello;
  constexpr size_t kStreamAt = 16;
  if (kind >= 1) words[kStreamAt] = std::byte{1};
  if (kind == 2) {  // what a sniffer can rebuild without the secrets
    tcp::Hello hello = helloOf(peer.target, peer.mine, door, 1);
    hello.claim = hello.proof = {};
    words = tcp::encode(hello);
  }
  if (kind == 3)
    words = tcp::encode(helloOf(peer.target, peer.mine, door, 0));  // the peer, that number again
  if (kind == 4) {  // the peer with another number, in a greeting for another
    tcp::Hello hello = helloOf(peer.target, peer.mine, door, 1);
    hello.stream = 2;
    words = tcp::encode(hello);
  }
  sendRaw(again, words);
  CHECK(pumpUntil({&end}, [&] { return isClosed(again); }));
  again.reset();
  for (int i = 0; i < 200; i++) end.poll();
  CHECK(end.count(broken) == 0);
  tcp::FrameHeader header;
  header.kind = FrameKind::notify;
  header.number = 5;
  sendRaw(peer.fd, header);
  CHECK(pumpUntil({&end}, [&] { return end.count(notified) == 1; }));
}

TEST_CASE("tcp: another stream is let in once, and from where the first one came") {
  auto transport = tcp::makeTransport(tcpConfig(4));
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  peer.announceStreams(4);
  const auto isLetIn = [&](const Fd& fd, uint8_t stream) {
    sendRaw(fd, tcp::encode(helloOf(peer.target, peer.mine, readDoor(fd, {&end}), stream)));
    tcp::FrameHeader header;
    bool closed = false;
    REQUIRE(pumpUntil({&end}, [&] {
      const ssize_t got = ::recv(fd.get(), &header, sizeof header, MSG_DONTWAIT | MSG_PEEK);
      closed = got == 0 || (got < 0 && errno != EAGAIN);
      return closed || got == sizeof header;
    }));
    return !closed && header.kind == FrameKind::welcome;
  };
  const Fd second = dialTo(peer.target);
  CHECK(isLetIn(second, 1));
  CHECK_FALSE(isLetIn(dialTo(peer.target), 1));
  SocketAddress elsewhere = SocketAddress::loopback();
  reinterpret_cast<sockaddr_in*>(&elsewhere.storage)->sin_addr.s_addr = htonl(0x7f000063);
  Fd stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(stranger.get(), elsewhere.raw(), elsewhere.length) == 0);
  const SocketAddress to = peer.target.socket();
  REQUIRE(::connect(stranger.get(), to.raw(), to.length) == 0);
  CHECK_FALSE(isLetIn(stranger, 2));
  CHECK(end.count(broken) == 0);
}

TEST_CASE("tcp: who answers at the peer's port and cannot prove to be it gets no lane") {
  auto transport = tcp::makeTransport(tcpConfig());
  SeamEnd end(*transport, 4096);
  tcp::LaneAddress mine = addressOf(end);
  SocketAddress at = SocketAddress::loopback();
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(listener.get(), at.raw(), at.length) == 0);
  REQUIRE(::listen(listener.get(), 4) == 0);
  mine.listensAt(localAddress(listener.get()));
  mine.streams = 255;  // higher than any: it is weft who dials
  mine.secret.fill(std::byte{7});
  mine.port = localAddress(listener.get()).port();
  REQUIRE(end.lane->connect(tcp::encode(mine)));
  Fd fd(::accept(listener.get(), nullptr, nullptr));
  REQUIRE(fd);
  const bool speaksWeft = GENERATE(true, false);
  if (speaksWeft)
    sendRaw(fd, tcp::encodeDoor(freshNonce()));
  else
    sendRaw(fd, "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
  for (int i = 0; i < 200; i++) end.poll();
  tcp::FrameHeader welcome;
  welcome.kind = FrameKind::welcome;
  sendRaw(fd, welcome);
  CHECK(pumpUntil({&end}, [&] { return end.count(connected, false) == 1; }));
  CHECK(end.count(connected, true) == 0);
}

TEST_CASE("tcp: a crowd of strangers holds a bounded number of descriptors") {
  constexpr size_t kCrowd = 400, kMost = 256;
  auto transport = tcp::makeTransport(tcpConfig());
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  std::vector<Fd> crowd;
  for (size_t i = 0; i < kCrowd; i++) crowd.push_back(dialTo(addressOf(a)));
  const size_t before = openDescriptors();
  REQUIRE(a.lane->connect(b.lane->address()));
  for (int i = 0; i < 200; i++) {
    a.poll();
    CHECK(openDescriptors() <= before + kMost + 2);
  }
  a.importFrom(b);
  b.connectTo(a);
  REQUIRE(
      pumpUntil({&a, &b}, [&] { return a.count(connected, true) == 1 && b.count(connected, true) == 1; }));
}

TEST_CASE("tcp: a frame that is not in order ends the lane and touches nothing") {
  auto transport = tcp::makeTransport(tcpConfig());
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  const uint64_t key = keyOf(end);
  const int kind = GENERATE(range(0, 12));
  CAPTURE(kind);
  tcp::FrameHeader header;
  if (kind == 0) peer.frame(FrameKind::write, 4097, key);
  if (kind == 1) peer.frame(FrameKind::write, 8, key, 4090);
  if (kind == 2) peer.frame(FrameKind::notify, 8, key, ~uint64_t{0} - 3);
  if (kind == 3) peer.frame(FrameKind::notify, 8, key ^ uint64_t{1} << 50);
  if (kind == 4) peer.frame(FrameKind::readRequest, 8, key, 4090);
  if (kind == 5) peer.frame(FrameKind::readReply, 8, key);  // to a read that nobody asked for
  if (kind == 6) peer.frame(FrameKind::welcome, 0, 0);
  if (kind == 7) peer.frame(static_cast<FrameKind>(77), 0, 0);
  if (kind == 8) peer.frame(FrameKind::bye, 5, 0);
  if (kind == 9) peer.frame(FrameKind::write, uint32_t{1} << 31, key);
  if (kind == 10) header.landed = 3;  // works that were never posted
  if (kind == 11) header.mark++;
  if (kind >= 10) sendRaw(peer.fd, header);
  for (int i = 0; i < 100; i++) sendRaw(peer.fd, std::array<std::byte, 64>{std::byte{0x55}});
  REQUIRE(pumpUntil({&end}, [&] { return end.count(broken, false) == 1; }));
  CHECK_FALSE(end.words.empty());
  CHECK(end.count(notified) == 0);
  CHECK(std::count(end.bytes.begin(), end.bytes.end(), 0) == 4096);
  CHECK(pumpUntil({&end}, [&] { return isClosed(peer.fd); }));
}

TEST_CASE("tcp: frames may come byte by byte") {
  auto transport = tcp::makeTransport(tcpConfig());
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  tcp::FrameHeader header;
  header.kind = FrameKind::notify;
  header.length = 3;
  header.number = 9;
  header.key = keyOf(end);
  header.offset = 100;
  std::array<std::byte, sizeof header + 3> bytes{};
  std::memcpy(bytes.data(), &header, sizeof header);
  std::fill(bytes.end() - 3, bytes.end(), std::byte{5});
  for (size_t round = 1; round <= 3; round++) {
    for (const std::byte byte : bytes) {
      CHECK(end.count(notified) == round - 1);
      sendRaw(peer.fd, byte);
      for (int i = 0; i < 4; i++) end.poll();
    }
    REQUIRE(pumpUntil({&end}, [&] { return end.count(notified) == round; }));
  }
  CHECK(end.first(notified)->imm == 9);
  CHECK(std::count(end.bytes.begin(), end.bytes.end(), 5) == 3);
  CHECK(end.bytes[100] == 5);
}

TEST_CASE("tcp: a peer that asks for reads and never takes them costs a bounded amount") {
  auto transport = tcp::makeTransport(tcpConfig());
  SeamEnd end(*transport, 4096);
  RawPeer peer(end);
  const uint64_t key = keyOf(end);
  for (int i = 0; i < 200'000 && end.count(broken) == 0; i++) {
    peer.frame(FrameKind::readRequest, 4096, key);
    if (i % 64 == 0) end.poll();
  }
  CHECK(end.count(broken, false) == 1);
}
