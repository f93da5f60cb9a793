// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>

#include "providers/verbs/gid.h"
#include "src/base/bytes.h"
#include "weft/result.h"

// What a lane tells its peer: everything the other end's queue pair needs to reach this one. A value.
namespace weft::verbs {

struct LaneAddress {
  bool ethernet = true;
  uint8_t mtu = 1;          // ibv_mtu
  uint8_t readsServed = 1;  // outstanding reads this end answers
  uint16_t lid = 0;
  uint32_t queuePair = 0;
  uint32_t packetNumber = 0;  // the first this end sends
  std::array<Gid, 2> gids{};  // [0] IPv4 or InfiniBand, [1] IPv6; zero: none
};

Bytes encode(const LaneAddress& address);
Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes);

// Which of the gids both ends have, IPv4 first. An error that names both ends where there is none.
Result<size_t> commonGid(const LaneAddress& mine, const LaneAddress& peer);

// "10.99.0.2, queue pair 17"
std::string addressText(const LaneAddress& address);

}  // namespace weft::verbs
