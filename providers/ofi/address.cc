// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/address.h"

#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <netinet/in.h>

namespace weft::ofi {

namespace {

constexpr uint8_t kAddressVersion = 1;
constexpr size_t kMaxNameBytes = 224;  // the seam allows 256 bytes in all

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
  out.put(kAddressVersion).blob(address.name).put(address.doorstepBase).put(address.doorstepKey);
  return out.take();
}

Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  LaneAddress address;
  const auto version = in.get<uint8_t>();
  const auto name = in.blob();
  address.name.assign(name.begin(), name.end());
  address.doorstepBase = in.get<uint64_t>();
  address.doorstepKey = in.get<uint64_t>();
  if (in.done() && version == kAddressVersion && !name.empty() && name.size() <= kMaxNameBytes)
    return address;
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

int addressRank(uint32_t format, const void* address, size_t length) {
  if (format != FI_SOCKADDR_IN6 || !address || !holds(length, sizeof(sockaddr_in6))) return 0;
  sockaddr_in6 in6;
  std::memcpy(&in6, address, sizeof in6);
  return IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) ? 2 : 1;
}

}  // namespace weft::ofi
