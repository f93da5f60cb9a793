// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/wire.h"

#include <algorithm>

namespace weft::tcp {

namespace {

constexpr uint8_t kAddressVersion = 1;
constexpr uint64_t kHelloMagic = 0x3170637474666577;  // "wefttcp1"

}  // namespace

Bytes encode(const LaneAddress& address) {
  ByteWriter out;
  out.put(kAddressVersion).put(static_cast<uint8_t>(address.v6)).put(address.streams).put(address.port);
  out.raw(address.ip).put(address.lane).raw(address.secret);
  return out.take();
}

Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  LaneAddress address;
  const auto version = in.get<uint8_t>();
  const auto v6 = in.get<uint8_t>();
  address.v6 = v6 == 1;
  address.streams = in.get<uint8_t>();
  address.port = in.get<uint16_t>();
  in.fill(address.ip);
  address.lane = in.get<uint64_t>();
  in.fill(address.secret);
  const bool good = version == kAddressVersion && v6 <= 1 && address.streams >= 1 && address.port != 0;
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

HelloBytes encode(const Hello& hello) {
  ByteWriter out;
  out.put(kHelloMagic).put(hello.lane).raw(hello.secret).raw(hello.from).put(uint64_t{hello.stream});
  HelloBytes bytes;
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  return bytes;
}

bool decode(const HelloBytes& bytes, Hello* out) {
  ByteReader in(bytes);
  const auto magic = in.get<uint64_t>();
  out->lane = in.get<uint64_t>();
  in.fill(out->secret);
  in.fill(out->from);
  const auto stream = in.get<uint64_t>();
  out->stream = static_cast<uint8_t>(stream);
  return in.done() && magic == kHelloMagic && stream < kMostStreams;
}

bool wellFormed(const FrameHeader& header) {
  if (header.mark != kFrameMark || (header.flags & ~kWantsAck) != 0) return false;
  if (header.kind < FrameKind::write || header.kind > FrameKind::message) return false;
  if (header.carries() || header.kind == FrameKind::readRequest) return header.length <= kMaxWriteBytes;
  return header.length == 0 && header.flags == 0;
}

}  // namespace weft::tcp
