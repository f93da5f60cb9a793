// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <memory>
#include <vector>

#include "providers/common/key_table.h"
#include "providers/loop/transport.h"
#include "src/mem/region.h"
#include "tests/support/catch.h"

// A peer that was taken over names memory by keys that it was given, or that it guessed from others: it can
// do no more than what the memory is for.
using namespace weft;

namespace {

constexpr size_t kBytes = 4096;

struct Stage {
  Stage() : transport(loop::makeTransport({})) {
    const auto devices = transport->discover();
    REQUIRE(devices);
    const auto device = transport->open(devices->front());
    REQUIRE(device);
    cache = std::make_unique<mem::RegionCache>(std::vector{*device});
  }
  mem::RegionRef get(PeerAccess peers) {
    MemoryDesc desc;
    desc.address = page;
    desc.length = kBytes;
    desc.peers = peers;
    const auto region = cache->get(desc);
    REQUIRE(region);
    return *region;
  }
  alignas(kBytes) std::byte page[kBytes] = {};
  std::unique_ptr<Transport> transport;
  std::unique_ptr<mem::RegionCache> cache;
};

}  // namespace

TEST_CASE("memory that only sends is neither written nor read by a peer, and what receives is not read") {
  KeyTable table;
  std::vector<std::byte> bytes(kBytes);
  const uint64_t sends = table.add(bytes.data(), kBytes, -1, PeerAccess::none);
  const uint64_t receives = table.add(bytes.data(), kBytes, -1, PeerAccess::write);
  const uint64_t flushed = table.add(bytes.data(), kBytes, -1, PeerAccess::readAndWrite);
  CHECK(table.use(sends).valid());  // by its owner
  CHECK_FALSE(table.use(sends, PeerAccess::write).valid());
  CHECK_FALSE(table.use(sends, PeerAccess::readAndWrite).valid());
  CHECK(table.use(receives, PeerAccess::write).valid());
  CHECK_FALSE(table.use(receives, PeerAccess::readAndWrite).valid());
  CHECK(table.use(flushed, PeerAccess::readAndWrite).valid());
}

TEST_CASE("a region that was made to send is not handed to a receiver, whose peers would then write by it") {
  Stage stage;
  const mem::RegionRef sends = stage.get(PeerAccess::none);
  const mem::RegionRef receives = stage.get(PeerAccess::write);
  CHECK(sends->id() != receives->id());
  CHECK(stage.get(PeerAccess::none)->id() == sends->id());
  CHECK(stage.get(PeerAccess::write)->id() == receives->id());
  CHECK(stage.get(PeerAccess::readAndWrite)->id() != receives->id());
}

TEST_CASE("a region that peers may write to serves a sender as well, and is not registered twice") {
  Stage stage;
  const mem::RegionRef receives = stage.get(PeerAccess::write);
  CHECK(stage.get(PeerAccess::none)->id() == receives->id());
  CHECK(stage.cache->counters().misses == 1);
}
