// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/wire.h"
#include "tests/support/catch.h"

// The address of a lane as it comes from a peer: each part of it that cannot be is refused.
using namespace weft;
using namespace weft::tcp;

namespace {

LaneAddress anAddress() {
  LaneAddress address;
  address.v6 = true;
  address.streams = 3;
  address.port = 4711;
  address.lane = 17;
  for (size_t i = 0; i < address.ip.size(); i++) address.ip[i] = static_cast<std::byte>(i);
  return address;
}

}  // namespace

TEST_CASE("a lane's address comes as it was sent") {
  const auto decoded = decodeLaneAddress(encode(anAddress()));
  REQUIRE(decoded);
  CHECK(encode(*decoded) == encode(anAddress()));
  CHECK(decoded->v6);
  CHECK(decoded->streams == 3);
  CHECK(decoded->port == 4711);
}

TEST_CASE(
    "a lane's address of another version, family, without a port or a stream, or of another length is "
    "refused") {
  const Bytes good = encode(anAddress());
  for (const auto& [at, value] : {std::pair<size_t, int>{0, 1}, {0, 3}, {1, 4}, {2, 0}}) {
    Bytes bad = good;
    bad[at] = static_cast<std::byte>(value);
    CHECK(!decodeLaneAddress(bad));
  }
  LaneAddress address = anAddress();
  address.port = 0;
  CHECK(!decodeLaneAddress(encode(address)));
  CHECK(!decodeLaneAddress(std::span(good).first(good.size() - 1)));
  Bytes longer = good;
  longer.push_back(std::byte{0});
  CHECK(!decodeLaneAddress(longer));
}

TEST_CASE("a lane's address is that of the socket, of either family, and one stream is enough") {
  LaneAddress address = anAddress();
  address.streams = 1;
  CHECK(decodeLaneAddress(encode(address)));
  address.streams = 0;
  CHECK(!decodeLaneAddress(encode(address)));
  address.listensAt(SocketAddress::loopback(4712));
  CHECK(!address.v6);
  CHECK(address.socket().text() == "127.0.0.1:4712");
  address.listensAt(SocketAddress::any(AF_INET6, 4713));
  CHECK(address.v6);
  CHECK(address.socket().text() == "[::]:4713");
}

TEST_CASE("a frame's header is taken if its kind is known and its length can be") {
  const auto taken = [](FrameKind kind, uint32_t length, uint8_t flags = 0, uint16_t mark = kFrameMark) {
    FrameHeader header;
    header.kind = kind;
    header.length = length;
    header.flags = flags;
    header.mark = mark;
    return wellFormed(header);
  };
  for (const FrameKind kind : {FrameKind::write, FrameKind::notify, FrameKind::readRequest,
                               FrameKind::readReply, FrameKind::message}) {
    INFO(static_cast<int>(kind));
    CHECK(taken(kind, 0));
    CHECK(taken(kind, kMaxWriteBytes, kWantsAck));
    CHECK_FALSE(taken(kind, kMaxWriteBytes + 1));
    CHECK_FALSE(taken(kind, 8, 2));
    CHECK_FALSE(taken(kind, 8, 0, kFrameMark + 1));
  }
  for (const FrameKind kind : {FrameKind::ack, FrameKind::welcome, FrameKind::streams, FrameKind::bye,
                               FrameKind::byeAnswer, FrameKind::refusal}) {
    INFO(static_cast<int>(kind));
    CHECK(taken(kind, 0));
    CHECK_FALSE(taken(kind, 1));
    CHECK_FALSE(taken(kind, 0, kWantsAck));
    CHECK_FALSE(taken(kind, 1, kWantsAck));
  }
  CHECK_FALSE(taken(static_cast<FrameKind>(0), 0));
  CHECK_FALSE(taken(static_cast<FrameKind>(12), 0));
}

TEST_CASE("a greeting is taken for the streams that a lane may have, and from nobody else") {
  Hello hello;
  hello.lane = 17;
  hello.stream = kMostStreams - 1;
  Hello got;
  CHECK(decode(encode(hello), &got));
  CHECK((got.lane == 17 && got.stream == kMostStreams - 1));
  hello.stream = kMostStreams;
  CHECK_FALSE(decode(encode(hello), &got));
  HelloBytes stranger = encode(Hello{});
  CHECK(decode(stranger, &got));
  stranger[0] ^= std::byte{1};
  CHECK_FALSE(decode(stranger, &got));
}

TEST_CASE("each tag of a greeting covers who, which stream, both nonces and the job's secret") {
  Protection protection;
  const Bytes acceptor = encode(anAddress()), dialler(acceptor.size(), std::byte{3});
  Greeting greeting{{}, {}, acceptor, dialler};
  const auto tag = [&] {
    return greetingTag(TagOf::hello, greetingKey(protection, Secret{}, Secret{}), greeting);
  };
  const Tag128 first = tag();
  CHECK(first == tag());
  CHECK(first != greetingTag(TagOf::welcome, greetingKey(protection, Secret{}, Secret{}), greeting));
  greeting.hello.stream = 1;
  CHECK(first != tag());
  greeting.hello.stream = 0;
  greeting.door[15] = std::byte{1};
  CHECK(first != tag());
  greeting.door = {};
  greeting.hello.nonce[0] = std::byte{1};
  CHECK(first != tag());
  greeting.hello.nonce = {};
  greeting.hello.lane = 1;
  CHECK(first != tag());
  greeting.hello.lane = 0;
  greeting.dialler = acceptor;
  CHECK(first != tag());
  greeting.dialler = dialler;
  protection.jobSecret.emplace();
  protection.jobSecret->fill(std::byte{1});
  CHECK(first != tag());
}

TEST_CASE("a tag fits into a welcome, and a door's words are recognized") {
  Tag128 tag{};
  for (size_t i = 0; i < tag.size(); i++) tag[i] = static_cast<std::byte>(i + 1);
  FrameHeader header;
  header.kind = FrameKind::welcome;
  putTag(tag, &header);
  CHECK((tagIn(header) == tag && wellFormed(header)));
  DoorBytes words = encodeDoor(tag);
  Nonce nonce{};
  CHECK((decodeDoor(words, &nonce) && nonce == tag));
  words[0] ^= std::byte{1};
  CHECK_FALSE(decodeDoor(words, &nonce));
}
