// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <netinet/in.h>

// The bytes of a lane's address, and libfabric's addresses in words.
namespace weft::ofi {

namespace {

constexpr uint8_t kAddressVersion = 2;
// Bytes of all names together; the seam allows 256 for the whole address.
constexpr size_t kMostNameBytes = 224;

std::string ipText(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(family, address, text.data(), text.size()) ? std::string(text.data()) : std::string();
}

bool holds(size_t length, size_t wanted) {
  return length >= wanted;
}

}  // namespace

Bytes encode(const LaneAddress& address) {
  ByteWriter out;
  out.put(kAddressVersion).put(static_cast<uint8_t>(address.names.size()));
  for (const Bytes& name : address.names) out.blob(name);
  out.put(address.helloBase).put(address.helloKey);
  return out.take();
}

Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  LaneAddress address;
  const auto version = in.get<uint8_t>();
  const size_t count = in.get<uint8_t>();
  size_t nameBytes = 0;
  bool good = version == kAddressVersion && count >= 1 && count <= LaneAddress::kMostNames;
  for (size_t i = 0; good && i < count; i++) {
    const auto name = in.blob();
    address.names.emplace_back(name.begin(), name.end());
    nameBytes += name.size();
    good = !name.empty() && nameBytes <= kMostNameBytes;
  }
  address.helloBase = in.get<uint64_t>();
  address.helloKey = in.get<uint64_t>();
  if (good && in.done()) return address;
  return Error(Code::invalidArgument, "connecting a lane",
               "the peer's lane address is damaged or from another version of weft");
}

std::string addressText(uint32_t format, const void* address, size_t length) {
  if (!address) return {};
  if (format == FI_SOCKADDR_IN && holds(length, sizeof(sockaddr_in))) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    return ipText(AF_INET, &in.sin_addr);
  }
  if (format == FI_SOCKADDR_IN6 && holds(length, sizeof(sockaddr_in6))) {
    sockaddr_in6 in6;
    std::memcpy(&in6, address, sizeof in6);
    return ipText(AF_INET6, &in6.sin6_addr);
  }
  if (format == FI_ADDR_EFA && holds(length, sizeof(in6_addr))) return ipText(AF_INET6, address);
  if (format != FI_ADDR_STR) return {};
  const auto* text = static_cast<const char*>(address);
  return std::string(text, ::strnlen(text, length));
}

size_t placeBytes(uint32_t format, size_t length) {
  constexpr size_t kGidAndQueuePair = 16 + 2;
  return format == FI_ADDR_EFA ? std::min(length, kGidAndQueuePair) : length;
}

int addressRank(uint32_t format, const void* address, size_t length) {
  if (format != FI_SOCKADDR_IN6 || !address || !holds(length, sizeof(sockaddr_in6))) return 0;
  sockaddr_in6 in6;
  std::memcpy(&in6, address, sizeof in6);
  return IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) ? 2 : 1;
}

}  // namespace weft::ofi
