// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <vector>

#include "providers/verbs/gid.h"
#include "src/base/bytes.h"
#include "weft/result.h"

// The address of a lane: everything that the other end's queue pair needs to reach this one. A value.
namespace weft::verbs {

// A queue pair of a lane.
struct PairAddress {
  uint32_t queuePair = 0;
  uint32_t packetNumber = 0;  // the first this end sends
  bool operator==(const PairAddress&) const = default;
};

struct LaneAddress {
  static constexpr size_t kMostPairs = 16;

  bool ethernet = true;
  uint8_t mtu = 1;           // ibv_mtu
  uint8_t readsServed = 1;   // outstanding reads this end answers
  bool takesApart = false;   // notifications that come behind their data
  bool needsHeader = false;  // InfiniBand's global one, in every packet
  uint16_t lid = 0;
  std::array<Gid, 2> gids{};       // [0] IPv4 or InfiniBand, [1] IPv6; zero: none
  uint32_t eceVendor = 0;          // extensions this end's card offers (enhanced connection establishment)
  uint32_t eceOptions = 0;         // 0: none
  std::vector<PairAddress> pairs;  // 1 to kMostPairs

  const PairAddress& first() const { return pairs.front(); }
  LaneAddress only(size_t i) const;  // as if the lane had the i-th queue pair alone
};

Bytes encode(const LaneAddress& address);
Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes);

// Which of the gids both ends have, IPv4 first. An error that names both ends where there is none.
Result<size_t> commonGid(const LaneAddress& mine, const LaneAddress& peer);

// "10.99.0.2, queue pair 17"
std::string addressText(const LaneAddress& address);

}  // namespace weft::verbs
