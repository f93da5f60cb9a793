// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// How much registered memory an engine takes for its peers.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

TEST_CASE("1,024 peers of one engine take at most 64 MiB until they are sent something") {
  World world({});
  Engine& engine = *world.side(0).engine;
  EngineEntry in(engine, EngineEntry::wait);
  for (uint32_t remote = 1; remote <= 1024; remote++)
    REQUIRE(engine.peering(world.side(0).other, 1000 + remote, 1));
  INFO(engine.arena().registeredBytes() << " bytes");
  CHECK(engine.arena().registeredBytes() <= size_t{64} << 20);
}

TEST_CASE("staging for eager messages is taken with the first one") {
  World world({});
  Connection link = world.connect(0);
  Buffer from(*link.send, 2 << 20), to(*link.recv, 2 << 20);
  const ReceiveSpec spec{to.data(), to.size(), 1, to.handle(), nullptr};
  REQUIRE(link.recv->irecv(std::span(&spec, 1)).request);
  world.pump(3);
  REQUIRE(link.send->isend(from.data(), from.size(), 1, from.handle(), nullptr).request);
  CHECK_FALSE(link.send->peering().staging());
  REQUIRE(link.send->isend(from.data(), 8, 2, from.handle(), nullptr).request);
  CHECK(link.send->peering().staging());
}
