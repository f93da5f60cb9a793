// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/handle.h"

#include <cstring>
#include <netinet/in.h>

#include "src/base/log.h"

// The handle's bytes. All numbers are little-endian (src/base/bytes.h).
namespace weft::control {

namespace {

constexpr uint32_t kHandleMagic = 0x54464557;  // "WEFT"
constexpr size_t kChecksumOffset = 112;        // covers everything before it
constexpr size_t kAddressSpace = 68;           // the bytes between the secret and the checksum
constexpr uint8_t kIPv4 = 4, kIPv6 = 6;        // the first byte of an address; 0 ends the list

Error badHandle(std::string detail) {
  return Error(Code::invalidArgument, "reading a connection handle", std::move(detail));
}

uint64_t checksum(std::span<const std::byte> bytes) {
  const Tag128 tag = sipHash128(Key128{}, bytes);  // against damage, not against forgery
  uint64_t value = 0;
  std::memcpy(&value, tag.data(), sizeof value);
  return value;
}

size_t encodedSize(const SocketAddress& address) {
  return 1 + address.ip().size();
}

// Magic first, then version, then checksum, so that the error names the likeliest cause.
Status checkFrame(std::span<const std::byte, kHandleBytes> in) {
  ByteReader reader(in);
  const auto magic = reader.get<uint32_t>();
  if (magic != kHandleMagic) {
    return badHandle(
        format("these bytes are not a weft handle (they begin with 0x%08x); do all ranks load weft?", magic));
  }
  const auto version = reader.get<uint16_t>();
  if (version != kWireVersion) {
    return badHandle(format("the peer speaks wire version %d, this process %d; install one weft everywhere",
                            version, kWireVersion));
  }
  ByteReader tail(in.subspan(kChecksumOffset));
  if (tail.get<uint64_t>() == checksum(in.first(kChecksumOffset))) return {};
  return badHandle("damaged on its way: the checksum does not fit");
}

}  // namespace

void putAddress(ByteWriter& writer, const SocketAddress& address) {
  writer.put(address.family() == AF_INET ? kIPv4 : kIPv6).raw(address.ip());
}

std::optional<SocketAddress> getAddress(ByteReader& reader, uint16_t port) {
  const auto kind = reader.get<uint8_t>();
  if (kind != kIPv4 && kind != kIPv6) return std::nullopt;
  const auto ip = reader.raw(kind == kIPv4 ? sizeof(in_addr) : sizeof(in6_addr));
  if (reader.failed()) return std::nullopt;
  return SocketAddress::of(ip, port);
}

void Handle::encode(std::span<std::byte, kHandleBytes> out) const {
  ByteWriter writer;
  writer.put(kHandleMagic).put(kWireVersion);
  writer.put(addresses.empty() ? uint16_t{0} : addresses.front().port());
  writer.raw(process).put(listener).raw(secret);
  size_t room = kAddressSpace;
  for (const SocketAddress& address : addresses) {
    if (encodedSize(address) > room) continue;
    room -= encodedSize(address);
    putAddress(writer, address);
  }
  Bytes bytes = writer.take();
  bytes.resize(kChecksumOffset);
  const uint64_t sum = checksum(bytes);
  std::memset(out.data(), 0, out.size());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  std::memcpy(out.data() + kChecksumOffset, &sum, sizeof sum);
}

Result<Handle> Handle::decode(std::span<const std::byte, kHandleBytes> in) {
  TRY(checkFrame(in));
  ByteReader reader(in.first(kChecksumOffset));
  reader.raw(sizeof kHandleMagic + sizeof kWireVersion);
  const auto port = reader.get<uint16_t>();
  Handle handle;
  reader.fill(handle.process);
  handle.listener = reader.get<uint32_t>();
  reader.fill(handle.secret);
  while (reader.left() > 0) {
    auto address = getAddress(reader, port);
    if (!address) break;  // the zero padding
    handle.addresses.push_back(*address);
  }
  if (handle.addresses.empty()) return badHandle("it holds no address");
  return handle;
}

}  // namespace weft::control
