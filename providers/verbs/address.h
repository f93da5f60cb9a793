// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <vector>

#include "providers/verbs/gid.h"
#include "src/base/bytes.h"
#include "weft/result.h"

// The address of a lane: everything that the other end's queue pairs need to reach this end's. A value.
namespace weft::verbs {

// A queue pair of a lane.
struct PairAddress {
  uint32_t queuePair = 0;
  uint32_t packetNumber = 0;  // of the first packet that this end sends
  bool operator==(const PairAddress&) const = default;
};

// How an end takes notifications (send_queue.h): with their data; behind their data where the peer wants
// that, too; or behind their data in any case, as its card does not tell how long the write of a notification
// was.
enum class Apart : uint8_t { never, ifWanted, always };

struct LaneAddress {
  static constexpr size_t kMostPairs = 16;

  bool ethernet = true;
  uint8_t mtu = 1;          // ibv_mtu
  uint8_t readsServed = 1;  // outstanding reads that this end answers
  Apart apart = Apart::never;
  bool needsHeader = false;        // every packet needs InfiniBand's global header
  uint16_t lid = 0;                // InfiniBand's local address; 0: none
  std::array<Gid, 2> gids{};       // [0] IPv4 or InfiniBand, [1] IPv6; zero: none
  uint32_t eceVendor = 0;          // extensions that this end's card offers (ibv_query_ece(3))
  uint32_t eceOptions = 0;         // 0: none
  std::vector<PairAddress> pairs;  // 1 to kMostPairs

  const PairAddress& first() const { return pairs.front(); }
  LaneAddress only(size_t i) const;  // the address as if the lane had the i-th queue pair alone
};

Bytes encode(const LaneAddress& address);
// An error where the bytes are no address of this version.
Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes);

// The index of the gids that both ends have, IPv4 first. Where there is none, the error names both ends.
Result<size_t> commonGid(const LaneAddress& mine, const LaneAddress& peer);

// The packets of the two ends carry the gids with that index. RoCE has nothing else. InfiniBand needs them to
// leave a subnet, or where a port asks for it.
bool goesByGid(const LaneAddress& mine, const LaneAddress& peer, size_t gid);

// "10.99.0.2, queue pair 17"
std::string addressText(const LaneAddress& address);

}  // namespace weft::verbs
