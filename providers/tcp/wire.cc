// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/wire.h"

#include <algorithm>
#include <cstring>

namespace weft::tcp {

namespace {

constexpr uint8_t kAddressVersion = 2;
constexpr uint64_t kHelloMagic = 0x3270637474666577;  // "wefttcp2"
constexpr uint64_t kDoorMagic = 0x726f6f6474666577;   // "weftdoor"
constexpr uint8_t kV6 = 1, kSealed = 2;               // flags of an address

}  // namespace

Bytes encode(const LaneAddress& address) {
  ByteWriter out;
  out.put(kAddressVersion).put(static_cast<uint8_t>((address.v6 ? kV6 : 0) | (address.sealed ? kSealed : 0)));
  out.put(address.streams).put(address.port);
  out.raw(address.ip).put(address.lane).raw(address.secret);
  return out.take();
}

Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  LaneAddress address;
  const auto version = in.get<uint8_t>();
  const auto flags = in.get<uint8_t>();
  address.v6 = (flags & kV6) != 0;
  address.sealed = (flags & kSealed) != 0;
  address.streams = in.get<uint8_t>();
  address.port = in.get<uint16_t>();
  in.fill(address.ip);
  address.lane = in.get<uint64_t>();
  in.fill(address.secret);
  const bool good =
      version == kAddressVersion && flags <= (kV6 | kSealed) && address.streams >= 1 && address.port != 0;
  if (good && in.done()) return address;
  return Error(Code::invalidArgument, "connecting a lane",
               "the peer's lane address is damaged or from another version of weft");
}

void LaneAddress::listensAt(const SocketAddress& socket) {
  v6 = socket.family() == AF_INET6;
  port = socket.port();
  std::copy(socket.ip().begin(), socket.ip().end(), ip.begin());
}

SocketAddress LaneAddress::socket(uint32_t scope) const {
  SocketAddress socket = SocketAddress::of(std::span(ip).first(v6 ? 16 : 4), port);
  if (socket.isLinkLocal()) socket.setScope(scope);
  return socket;
}

DoorBytes encodeDoor(const Nonce& nonce) {
  ByteWriter out;
  out.put(kDoorMagic).raw(nonce);
  DoorBytes bytes;
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  return bytes;
}

bool decodeDoor(const DoorBytes& bytes, Nonce* out) {
  ByteReader in(bytes);
  const auto magic = in.get<uint64_t>();
  in.fill(*out);
  return in.done() && magic == kDoorMagic;
}

HelloBytes encode(const Hello& hello) {
  ByteWriter out;
  out.put(kHelloMagic).put(hello.lane).put(uint64_t{hello.stream}).raw(hello.nonce);
  out.raw(hello.claim).raw(hello.proof);
  HelloBytes bytes;
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  return bytes;
}

bool decode(const HelloBytes& bytes, Hello* out) {
  ByteReader in(bytes);
  const auto magic = in.get<uint64_t>();
  out->lane = in.get<uint64_t>();
  const auto stream = in.get<uint64_t>();
  out->stream = static_cast<uint8_t>(stream);
  in.fill(out->nonce);
  in.fill(out->claim);
  in.fill(out->proof);
  return in.done() && magic == kHelloMagic && stream < kMostStreams;
}

// A claim is checked before the acceptor knows its peer, so it covers the acceptor's address alone.
Tag128 greetingTag(TagOf what, const Key256& key, const Greeting& greeting) {
  ByteWriter said;
  said.text("weft lane").put(what).raw(greeting.door).raw(greeting.hello.nonce);
  said.put(greeting.hello.lane).put(greeting.hello.stream).blob(greeting.acceptor);
  if (what != TagOf::claim) said.blob(greeting.dialler);
  return shortHmacOf(key, said.bytes());
}

Key256 claimKey(const Protection& protection, const Secret& lane) {
  return protection.keyFor(lane, "weft lane claim");
}

Key256 greetingKey(const Protection& protection, const Secret& acceptor, const Secret& dialler) {
  ByteWriter both;
  return protection.keyFor(both.raw(acceptor).raw(dialler).bytes(), "weft lane greeting");
}

void putTag(const Tag128& tag, FrameHeader* header) {
  std::memcpy(&header->key, tag.data(), sizeof header->key);
  std::memcpy(&header->offset, tag.data() + sizeof header->key, sizeof header->offset);
}

Tag128 tagIn(const FrameHeader& header) {
  Tag128 tag{};
  std::memcpy(tag.data(), &header.key, sizeof header.key);
  std::memcpy(tag.data() + sizeof header.key, &header.offset, sizeof header.offset);
  return tag;
}

bool wellFormed(const FrameHeader& header) {
  if (header.mark != kFrameMark || (header.flags & ~kWantsAck) != 0) return false;
  if (header.kind < FrameKind::write || header.kind > FrameKind::message) return false;
  if (header.carries() || header.kind == FrameKind::readRequest) return header.length <= kMaxWriteBytes;
  return header.length == 0 && header.flags == 0;
}

}  // namespace weft::tcp
