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

// Addresses: what a peer's Endpoint sends us to connect to, and libfabric's addresses for people. Pure.
namespace weft::ofi {

// An Endpoint's address: libfabric's own names for its streams, and a few bytes of the peer's memory
// ("hello target") that any holder of the address may write to. Connecting and fencing write there.
struct LaneAddress {
  static constexpr size_t kMostNames = 6;  // as many with IPv6 as fit into what the seam allows

  std::vector<Bytes> names;  // one at least
  uint64_t helloBase = 0;
  uint64_t helloKey = 0;
};

Bytes encode(const LaneAddress& address);
Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes);

// "192.0.2.7", "fe80::1", "fi_shm://12"; empty for formats without a common notation.
std::string addressText(uint32_t format, const void* address, size_t length);

// How many bytes at its beginning no two living endpoints have in common: all, but for EFA, where a random
// queue key follows GID and queue pair (struct efa_ep_addr); the number of one that is gone is given again.
size_t placeBytes(uint32_t format, size_t length);

// Which of a card's addresses to use: lower is better. IPv4, then IPv6 with global scope; link-local needs a
// scope id that means nothing at the peer.
int addressRank(uint32_t format, const void* address, size_t length);

}  // namespace weft::ofi
