// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/net/address.h"
#include "src/base/siphash.h"
#include "weft/result.h"

// A listener publishes it and a connector needs it: which process, where it is, which listener, and its
// secret. It travels in NCCL's 128-byte handle; the last 8 bytes are left to the connecting side as scratch
// (see kScratchBytes). Values; any thread. Layout: docs/wire.md, "Handle".
namespace weft::control {

constexpr uint16_t kWireVersion = 6;  // of handles and of control links
constexpr size_t kHandleBytes = 128;
constexpr size_t kScratchBytes = 8;  // never encoded; zero in a fresh copy
constexpr size_t kScratchOffset = kHandleBytes - kScratchBytes;

using Incarnation = std::array<std::byte, 16>;  // random, one per process and plugin life

struct Handle {
  Incarnation process{};
  uint32_t listener = 0;
  Key128 secret{};
  std::vector<SocketAddress> addresses;  // all with one port; the order is the order to try; as many as fit

  void encode(std::span<std::byte, kHandleBytes> out) const;

  // invalidArgument when the bytes are not a handle of this wire version, naming what was found instead.
  static Result<Handle> decode(std::span<const std::byte, kHandleBytes> in);
};

// An address as it stands in handles and on control links: a family byte and the address, without port and
// scope.
void putAddress(ByteWriter& writer, const SocketAddress& address);
std::optional<SocketAddress> getAddress(ByteReader& reader, uint16_t port);

}  // namespace weft::control
