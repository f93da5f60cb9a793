// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/net/address.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include "src/base/log.h"

// Addresses over sockaddr_in and sockaddr_in6; names by getaddrinfo(3).
namespace weft {

namespace {

// The address in the form of its family; only called for that family.
const sockaddr_in& v4(const SocketAddress& address) {
  return *reinterpret_cast<const sockaddr_in*>(&address.storage);
}

const sockaddr_in6& v6(const SocketAddress& address) {
  return *reinterpret_cast<const sockaddr_in6*>(&address.storage);
}

socklen_t lengthOf(int family) {
  return family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

SocketAddress copyOf(const sockaddr* from, socklen_t length) {
  SocketAddress address;
  address.length = length;
  std::memcpy(&address.storage, from, length);
  return address;
}

}  // namespace

// 4 bytes make an IPv4 address, any other number an IPv6 address; the caller passes 4 or 16.
SocketAddress SocketAddress::of(std::span<const std::byte> ip, uint16_t port, uint32_t scope) {
  SocketAddress address = any(ip.size() == sizeof(in_addr) ? AF_INET : AF_INET6, port);
  void* to = address.family() == AF_INET
                 ? static_cast<void*>(&reinterpret_cast<sockaddr_in*>(&address.storage)->sin_addr)
                 : static_cast<void*>(&reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_addr);
  std::memcpy(to, ip.data(), ip.size());
  address.setScope(scope);
  return address;
}

SocketAddress SocketAddress::any(int family, uint16_t port) {
  SocketAddress address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  address.length = lengthOf(family);
  address.setPort(port);
  return address;
}

// 127.0.0.1 (RFC 1122, 3.2.1.3).
SocketAddress SocketAddress::loopback(uint16_t port) {
  constexpr std::array kIp{std::byte{127}, std::byte{0}, std::byte{0}, std::byte{1}};
  return of(kIp, port);
}

std::span<const std::byte> SocketAddress::ip() const {
  if (family() == AF_INET) return std::as_bytes(std::span(&v4(*this).sin_addr, 1));
  if (family() == AF_INET6) return std::as_bytes(std::span(&v6(*this).sin6_addr, 1));
  return {};
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET6) return ntohs(v6(*this).sin6_port);
  if (family() == AF_INET) return ntohs(v4(*this).sin_port);
  return 0;
}

void SocketAddress::setPort(uint16_t port) {
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
}

SocketAddress SocketAddress::withPort(uint16_t port) const {
  SocketAddress address = *this;
  address.setPort(port);
  return address;
}

uint32_t SocketAddress::scope() const {
  return family() == AF_INET6 ? v6(*this).sin6_scope_id : 0;
}

void SocketAddress::setScope(uint32_t scope) {
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&storage)->sin6_scope_id = scope;
}

// fe80::/10 (RFC 4291) and 169.254.0.0/16 (RFC 3927).
bool SocketAddress::isLinkLocal() const {
  if (family() == AF_INET) return ntohl(v4(*this).sin_addr.s_addr) >> 16 == 0xa9fe;
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(*this).sin6_addr);
}

bool SocketAddress::isLoopback() const {
  if (family() == AF_INET) return ntohl(v4(*this).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6(*this).sin6_addr);
}

std::string SocketAddress::ipText() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(family(), ip().data(), text.data(), text.size()) ? text.data() : "?";
}

std::string SocketAddress::text() const {
  if (family() == AF_INET) return format("%s:%d", ipText().c_str(), port());
  if (family() != AF_INET6) return "no address";
  std::array<char, IF_NAMESIZE> name{};
  if (scope() == 0 || !::if_indextoname(scope(), name.data()))
    return format("[%s]:%d", ipText().c_str(), port());
  return format("[%s%%%s]:%d", ipText().c_str(), name.data(), port());
}

// An interface with several addresses has an entry for each (getifaddrs(3)).
Result<std::vector<Interface>> localInterfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return Error(Code::system, "listing network interfaces", "getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || !(i->ifa_flags & IFF_RUNNING)) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    found.push_back({i->ifa_name, (i->ifa_flags & IFF_LOOPBACK) != 0, copyOf(i->ifa_addr, lengthOf(family))});
  }
  return found;
}

bool isIpText(const std::string& text) {
  in6_addr bytes{};  // which has room for both
  if (text.find('\0') != std::string::npos) return false;
  return ::inet_pton(AF_INET, text.c_str(), &bytes) == 1 || ::inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
}

// HOST may be empty for listening only. The last colon separates the port, so an IPv6 address needs brackets.
Result<std::vector<SocketAddress>> resolve(const std::string& text, Resolving what) {
  const bool listens = what == Resolving::toListen;
  const char* operation = listens ? "choosing where to listen" : "looking up an address";
  const size_t colon = text.rfind(':');
  const bool whole = colon != std::string::npos && colon + 1 < text.size() && (listens || colon > 0);
  if (!whole)
    return Error(Code::config, operation,
                 "\"" + text + "\" is not " + (listens ? "ADDRESS:PORT" : "HOST:PORT"));
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (listens) hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int wrong =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), text.c_str() + colon + 1, &hints, &list);
  if (wrong != 0) return Error(Code::config, operation, text + ": " + ::gai_strerror(wrong));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const addrinfo* one = list; one; one = one->ai_next)
    if (one->ai_family == AF_INET || one->ai_family == AF_INET6)
      found.push_back(copyOf(one->ai_addr, one->ai_addrlen));
  if (found.empty()) return Error(Code::config, operation, text + " has no address");
  return found;
}

}  // namespace weft
