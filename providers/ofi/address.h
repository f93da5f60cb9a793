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

// An Endpoint's address: libfabric's own name for it, and a few bytes of the peer's memory ("doorstep") that
// anyone who has the address may write to. Connecting and fencing write there.
struct LaneAddress {
  Bytes name;
  uint64_t doorstepBase = 0;
  uint64_t doorstepKey = 0;
};

Bytes encode(const LaneAddress& address);
Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes);

// "192.0.2.7", "fe80::1", "fi_shm://12"; empty for formats without a common notation.
std::string addressText(uint32_t format, const void* address, size_t length);

// Which of a card's addresses to use: lower is better. IPv4, then IPv6 with global scope; link-local needs a
// scope id that means nothing at the peer.
int addressRank(uint32_t format, const void* address, size_t length);

}  // namespace weft::ofi
