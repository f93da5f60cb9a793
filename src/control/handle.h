// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <netinet/in.h>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "src/base/siphash.h"
#include "weft/result.h"

// What a listener publishes and a connector needs: who and where the process is, which listener, and its
// secret. It travels in NCCL's 128-byte handle; the last 8 bytes are left to the connecting side as scratch
// (see kScratchBytes). Values; any thread. Layout: docs/wire.md, "Handle".
namespace weft::control {

constexpr size_t kHandleBytes = 128;
constexpr size_t kScratchBytes = 8;  // never encoded; zero in a fresh copy
constexpr size_t kScratchOffset = kHandleBytes - kScratchBytes;

using Incarnation = std::array<std::byte, 16>;  // random, one per process and plugin life

// An IPv4 or IPv6 address with port, comparable and printable.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  void setPort(uint16_t port);
  std::string text() const;  // "192.0.2.7:4711", "[2001:db8::1%eth0]:4711"
};

struct Handle {
  Incarnation process{};
  uint32_t listener = 0;
  Key128 secret{};
  std::vector<SocketAddress> addresses;  // all with one port; the order is the order to try; as many as fit

  void encode(std::span<std::byte, kHandleBytes> out) const;

  // invalidArgument when the bytes are not a handle of this wire version, naming what was found instead.
  static Result<Handle> decode(std::span<const std::byte, kHandleBytes> in);
};

}  // namespace weft::control
