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

// The words by which a connector finds a listener: the process, its addresses, the listener and its secret.
// They travel in NCCL's handle of 128 bytes; the last 8 bytes are scratch for the connecting side
// (kScratchBytes). Values; any thread. Layout: docs/wire.md, "Handle".
namespace weft::control {

constexpr uint16_t kWireVersion = 9;  // of handles and of control links
constexpr size_t kHandleBytes = 128;
constexpr size_t kScratchBytes = 8;  // never encoded; zero in a fresh copy
constexpr size_t kScratchOffset = kHandleBytes - kScratchBytes;

using Incarnation = std::array<std::byte, 16>;  // random, fresh for each process and life of the plugin

// `listener` is the listener's number in its process; `secret` proves that a caller has this handle.
struct Handle {
  Incarnation process{};
  uint32_t listener = 0;
  Key128 secret{};
  std::vector<SocketAddress> addresses;  // in the order to try; all have the same port; as many as fit

  // Addresses that do not fit are left out. The scratch part becomes zero.
  void encode(std::span<std::byte, kHandleBytes> out) const;

  // Code::invalidArgument where the bytes are no handle of this wire version; the error names what was found
  // instead.
  static Result<Handle> decode(std::span<const std::byte, kHandleBytes> in);
};

// An address as it is written in handles and on control links: a family byte and the address, without port
// and scope. getAddress returns nothing for any other family.
void putAddress(ByteWriter& writer, const SocketAddress& address);
std::optional<SocketAddress> getAddress(ByteReader& reader, uint16_t port);

}  // namespace weft::control
