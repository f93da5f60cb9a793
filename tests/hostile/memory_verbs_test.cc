// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <vector>

#include "providers/verbs/memory.h"
#include "tests/support/catch.h"

// The rights that a card is told of, which hold whatever a peer sends it.
using namespace weft;

namespace {

constexpr size_t kRegionBytes = 4096;
int lastAccess = -1;
ibv_mr registered{};

}  // namespace

TEST_CASE("a card is told no more rights than the memory needs") {
  verbs::Library library{};
  library.regMr = [](ibv_pd*, void*, size_t, int access) -> ibv_mr* {
    lastAccess = access;
    return &registered;
  };
  library.deregMr = [](ibv_mr*) { return 0; };
  std::vector<std::byte> bytes(kRegionBytes);
  MemoryDesc desc;
  desc.address = bytes.data();
  desc.length = kRegionBytes;
  const auto rights = [&](PeerAccess peers) {
    desc.peers = peers;
    REQUIRE(verbs::VerbsMemory::create(library, nullptr, desc));
    return lastAccess & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  };
  CHECK(rights(PeerAccess::none) == 0);
  CHECK(rights(PeerAccess::write) == IBV_ACCESS_REMOTE_WRITE);
  CHECK(rights(PeerAccess::readAndWrite) == (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
}
