// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/runtime.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// What the control room is told of the fabric while a peer's host is silent, and what of the fabric is not
// held against a peer that has just come back.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

TEST_CASE("traffic shows both ends that the other one's fabric works, and idleness does not") {
  const size_t bytes = GENERATE(100, 100'000);
  World world({});
  Connection link = world.connect(0);
  Buffer from(*link.send, bytes), to(*link.recv, bytes);
  world.watch(0);
  world.watch(1);
  const TimePoint before = world.clock().now();
  for (int round = 0; round < 3; round++) {
    world.clock().advance(Milliseconds(100));
    world.watch(0);
    world.watch(1);
  }
  CHECK(world.side(0).other->lastSeenOnFabric <= before);
  CHECK(world.side(1).other->lastSeenOnFabric <= before);

  // Every eighth eager message is asked for a completion.
  for (int message = 0; message < 8; message++) {
    const ReceiveSpec spec{to.data(), bytes, 1, to.handle(), nullptr};
    const Posted got = link.recv->irecv(std::span(&spec, 1));
    Posted sent{};
    for (int i = 0; i < 100 && !sent.request; i++) {
      world.pump();
      sent = link.send->isend(from.data(), bytes, 1, from.handle(), nullptr);
    }
    REQUIRE(sent.request);
    bool done[2] = {false, false};
    for (int i = 0; i < 100 && !(done[0] && done[1]); i++) {
      world.pump();
      done[0] = done[0] || link.send->testRequest(sent.request, nullptr).done;
      done[1] = done[1] || link.recv->testRequest(got.request, nullptr).done;
    }
    REQUIRE((done[0] && done[1]));
  }
  world.watch(0);
  world.watch(1);
  CHECK(world.side(0).other->lastSeenOnFabric > before);
  CHECK(world.side(1).other->lastSeenOnFabric > before);
}

// A fabric over sockets needs as long again as an outage took. Its lane is not blamed before, though the
// process answers already.
TEST_CASE("a lane that stands still is blamed only when its peer has settled") {
  World world({});
  Connection link = world.connect(0);
  Buffer from(*link.send, 100'000), to(*link.recv, 100'000);
  const ReceiveSpec spec{to.data(), to.size(), 1, to.handle(), nullptr};
  REQUIRE(link.recv->irecv(std::span(&spec, 1)).request);
  world.pump();
  REQUIRE(link.send->isend(from.data(), from.size(), 1, from.handle(), nullptr).request);
  const auto pass = [&](Milliseconds time) {  // in which nobody polls: nothing completes
    for (Milliseconds step{500}; time > Milliseconds(0); time -= step) {
      world.clock().advance(step);
      EngineEntry in(*world.side(0).engine, EngineEntry::wait);
      world.side(0).engine->watch();
    }
  };
  const Milliseconds bound = configOfTests().laneTimeout;
  world.side(0).other->settling = true;
  pass(bound * 3);
  CHECK_FALSE(link.send->peering().halted());
  world.side(0).other->settling = false;
  pass(bound - Milliseconds(1000));
  CHECK_FALSE(link.send->peering().halted());
  pass(Milliseconds(2000));
  CHECK(link.send->peering().halted());
}
