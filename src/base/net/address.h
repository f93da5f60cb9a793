// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "weft/result.h"

// The place of a socket, and the addresses of this host. Values; any thread. Only localInterfaces() asks the
// kernel. Only resolve() may ask a name server, and wait for it.
namespace weft {

// An IPv4 or IPv6 address with a port. A `length` of 0: no address.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  // `ip` in network order: 4 bytes or 16.
  static SocketAddress of(std::span<const std::byte> ip, uint16_t port, uint32_t scope = 0);
  static SocketAddress any(int family, uint16_t port = 0);  // every address of this host
  static SocketAddress loopback(uint16_t port = 0);         // 127.0.0.1

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  std::span<const std::byte> ip() const;  // in network order
  uint16_t port() const;
  void setPort(uint16_t port);
  SocketAddress withPort(uint16_t port) const;
  // The interface of a link-local IPv6 address, which has a meaning on this host only; 0: none.
  uint32_t scope() const;
  void setScope(uint32_t scope);

  bool isLinkLocal() const;
  bool isLoopback() const;
  std::string ipText() const;  // "192.0.2.7", "2001:db8::1"
  std::string text() const;    // "192.0.2.7:4711", "[2001:db8::1%eth0]:4711"
};

struct Interface {
  std::string name;
  bool loopback = false;
  SocketAddress address;  // an entry for each address; port 0
};

// Every address of an interface that is up and running, in the kernel's order.
Result<std::vector<Interface>> localInterfaces();

// True for the text of an IPv4 or IPv6 address without port or interface, of which no name server is asked.
bool isIpText(const std::string& text);

// "HOST:PORT", "[ADDRESS]:PORT", or ":PORT" to listen on. Returns every address that the text may mean, the
// best one first. The error names the text and the right form. May block.
enum class Resolving : uint8_t { toDial, toListen };
Result<std::vector<SocketAddress>> resolve(const std::string& text, Resolving what);

}  // namespace weft
