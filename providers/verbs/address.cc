// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/address.h"

#include "src/base/log.h"

// The bytes of a lane's address. Decoding checks every number: the bytes come from the peer.
namespace weft::verbs {

namespace {

constexpr uint8_t kVersion = 5;
// Queue pair and packet numbers have 24 bits.
constexpr uint32_t kMost24 = 0xffffff;

// An address of either family, for text.
const Gid& anyGid(const LaneAddress& address) {
  return isZero(address.gids[0]) ? address.gids[1] : address.gids[0];
}

}  // namespace

Bytes encode(const LaneAddress& address) {
  ByteWriter out;
  out.put(kVersion).put(static_cast<uint8_t>(address.ethernet)).put(address.mtu).put(address.readsServed);
  out.put(static_cast<uint8_t>(address.apart)).put(static_cast<uint8_t>(address.needsHeader));
  out.put(address.lid);
  for (const Gid& gid : address.gids) out.raw(std::as_bytes(std::span(gid)));
  out.put(address.eceVendor).put(address.eceOptions);
  out.put(static_cast<uint8_t>(address.pairs.size()));
  for (const PairAddress& pair : address.pairs) out.put(pair.queuePair).put(pair.packetNumber);
  return out.take();
}

Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  LaneAddress address;
  const auto version = in.get<uint8_t>();
  const auto ethernet = in.get<uint8_t>();
  address.ethernet = ethernet == 1;
  address.mtu = in.get<uint8_t>();
  address.readsServed = in.get<uint8_t>();
  const auto apart = in.get<uint8_t>();
  address.apart = static_cast<Apart>(apart);
  const auto needsHeader = in.get<uint8_t>();
  address.needsHeader = needsHeader == 1;
  address.lid = in.get<uint16_t>();
  for (Gid& gid : address.gids) {
    const auto raw = in.raw(gid.size());
    if (!raw.empty()) std::memcpy(gid.data(), raw.data(), gid.size());
  }
  address.eceVendor = in.get<uint32_t>();
  address.eceOptions = in.get<uint32_t>();
  const size_t count = in.get<uint8_t>();
  bool sane = version == kVersion && ethernet <= 1 && apart <= static_cast<uint8_t>(Apart::always) &&
              needsHeader <= 1 && address.mtu >= 1 && address.mtu <= 5 && count >= 1 &&
              count <= LaneAddress::kMostPairs;
  for (size_t i = 0; sane && i < count; i++) {
    const auto queuePair = in.get<uint32_t>();
    const auto packetNumber = in.get<uint32_t>();
    sane = queuePair <= kMost24 && packetNumber <= kMost24;
    address.pairs.push_back({queuePair, packetNumber});
  }
  if (in.done() && sane) return address;
  return Error(Code::invalidArgument, "connecting a lane", "the peer's verbs address is damaged");
}

LaneAddress LaneAddress::only(size_t i) const {
  LaneAddress one = *this;
  one.pairs = {pairs[i]};
  return one;
}

bool goesByGid(const LaneAddress& mine, const LaneAddress& peer, size_t gid) {
  constexpr size_t kSubnetBytes = 8;
  const Gid &here = mine.gids[gid], &there = peer.gids[gid];
  return mine.ethernet || mine.needsHeader || peer.needsHeader || peer.lid == 0 ||
         !std::equal(here.begin(), here.begin() + kSubnetBytes, there.begin());
}

Result<size_t> commonGid(const LaneAddress& mine, const LaneAddress& peer) {
  const auto differ = [&](const char* what) {
    return Error(Code::remote, "connecting a lane",
                 format("this port (%s) and the peer's (%s) %s", addressText(mine).c_str(),
                        addressText(peer).c_str(), what));
  };
  if (mine.ethernet != peer.ethernet)
    return differ("are of different kinds, one InfiniBand and one Ethernet: set WEFT_HCA on both ends");
  for (size_t i = 0; i < mine.gids.size(); i++)
    if (!isZero(mine.gids[i]) && !isZero(peer.gids[i])) return i;
  return differ("have no address family in common: give both an IPv4 address, or set WEFT_IB_GID_INDEX");
}

std::string addressText(const LaneAddress& address) {
  const std::string where =
      address.ethernet ? gidText(anyGid(address)) : format("LID %u", static_cast<unsigned>(address.lid));
  return format("%s, queue pair %u", where.c_str(), address.first().queuePair);
}

}  // namespace weft::verbs
