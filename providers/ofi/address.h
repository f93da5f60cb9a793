// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "providers/ofi/compat.h"
#include "src/base/bytes.h"
#include "weft/result.h"

// Addresses: the bytes that a peer's Endpoint sends us to connect to, and libfabric's addresses for people.
// Pure; any thread.
namespace weft::ofi {

// An Endpoint's address: libfabric's own names for its streams, and a few bytes of the peer's memory, the
// hello target. Any holder of the address may write to the hello target. Connecting and fencing write there.
struct LaneAddress {
  static constexpr size_t kMostNames = 6;  // with IPv6 as many as the seam has room for

  std::vector<Bytes> names;  // at least one
  uint64_t helloBase = 0;
  uint64_t helloKey = 0;
};

Bytes encode(const LaneAddress& address);
// An error where the bytes are no address of this version. They come from the peer.
Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes);

// "192.0.2.7", "fe80::1", "fi_shm://12"; empty for formats without a common notation.
std::string addressText(uint32_t format, const void* address, size_t length);

// The number of leading bytes that no two living endpoints have in common. It is the whole name, but for EFA:
// there a random queue key follows GID and queue pair (struct efa_ep_addr), and the number of a queue pair
// that is gone is given again.
size_t placeBytes(uint32_t format, size_t length);

// The order of a card's addresses: lower is better. IPv4 comes first, then IPv6 with global scope. A
// link-local address needs a scope id, which means nothing at the peer.
int addressRank(uint32_t format, const void* address, size_t length);

}  // namespace weft::ofi
