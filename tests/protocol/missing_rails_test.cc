// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/protocol/kept_log.h"
#include "tests/protocol/rails.h"

// Rails and cards that are missing from the start, or when something new is made.
using namespace weft;
using namespace weft::core;
using namespace weft::test;
using fault::FaultKind;
using fault::FaultOp;

TEST_CASE("a rail that cannot be connected is left out, and tried again") {
  fault::FaultRule refused;
  refused.kind = FaultKind::connectRefused;
  refused.rail = 1;
  Rails rails(2, {.atOnce = &refused});
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  fillPattern(from.data(), kLarge, 3);
  Request* receiving = rails.receive(to, kLarge);
  CHECK(rails.finished(rails.send(), rails.post(from, kLarge)));
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(firstMismatch(to.data(), kLarge, 3) == kLarge);
  rails.live(200);
  CHECK(rails.lanesUp(0) == 2);
  CHECK(rails.lanesUp(1) == 2);
}

TEST_CASE("a rail does not come back to a peering that has failed meanwhile") {
  Rails rails(2);
  {
    EngineEntry in(*rails.world().side(0).engine, EngineEntry::wait);
    rails.send().peering().laneFailed(rails.lane(0, 0), "a cable was pulled");
  }
  const auto dead = [&](int side) { return rails.lane(side, 0).state() == LaneState::accounted; };
  for (int i = 0; i < 100 && !(dead(0) && dead(1)); i++) rails.world().pump();
  REQUIRE(dead(0));
  REQUIRE(dead(1));
  // Event: one end cuts its lanes to close; the other one, which hears only that its comm failed, tries
  // again.
  {
    EngineEntry in(*rails.world().side(1).engine, EngineEntry::wait);
    rails.recv().peering().end({Ending::By::us, Error(Code::remote, "closing", "data was in flight")});
    rails.recv().peering().lanes().fence();
  }
  rails.live(100);
  // Expect: fenced is fenced.
  CHECK(dead(1));
  CHECK(rails.recv().peering().lanes().isFenced());
}

TEST_CASE("an engine made when a card cannot be used goes on with the others") {
  fault::FaultRule refused;
  refused.kind = FaultKind::openQueue;
  refused.rail = 1;
  Rails rails(3, {.atOnce = &refused});
  // Expect: as many lanes as ever, the one of the lost card over another one, on this side alone.
  CHECK(rails.lanesUp(0) == 3);
  CHECK(rails.lanesUp(1) == 3);
  CHECK(rails.lane(0, 1).rail() != 1);
  CHECK(rails.lane(1, 1).rail() == 1);
  for (int round = 0; round < 5; round++) {
    Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
    fillPattern(from.data(), kLarge, static_cast<uint64_t>(round));
    Request* receiving = rails.receive(to, kLarge);
    CHECK(rails.finished(rails.send(), rails.post(from, kLarge)));
    CHECK(rails.finished(rails.recv(), receiving));
    CHECK(firstMismatch(to.data(), kLarge, static_cast<uint64_t>(round)) == kLarge);
  }
  // Expect: a lane that breaks comes back, also over the card that stands in.
  rails.breakRail(1, FaultKind::kill, FaultOp::writeNotify, 1);
  rails.breakRail(0, FaultKind::kill, FaultOp::writeNotify, static_cast<int>(rails.lane(0, 1).rail()));
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  Request* receiving = rails.receive(to, kLarge);
  CHECK(rails.finished(rails.send(), rails.post(from, kLarge)));
  CHECK(rails.finished(rails.recv(), receiving));
  rails.heal();
  rails.live(300);
  CHECK(rails.lanesUp(0) == 3);
  CHECK(rails.lanesUp(1) == 3);
}

TEST_CASE("a peering made when a card of its engine has died goes on with the others") {
  const KeptLog log;
  WorldOptions options;
  std::shared_ptr<fault::FaultControl> control;
  for (int i = 0; i < 2; i++) {
    loop::LoopOptions fabric;
    fabric.rails = options.rails[i] = 2;
    auto wrapped = fault::makeTransport(loop::makeTransport(fabric));
    control = wrapped->control();  // side 1's
    options.transports[i] = std::move(wrapped);
  }
  World world(std::move(options));
  (void)world.connect(0);
  world.deliverMessages();
  // Event: a card dies, then the two meet again.
  for (int i = 0; i < 2; i++) world.side(i).engine->peeringByNumber(0)->peerEngineGone();
  fault::FaultRule closed;
  closed.kind = FaultKind::openEndpoint;
  closed.op = FaultOp::call;
  closed.rail = 1;
  closed.count = 0;
  control->add(closed);
  for (int from = 0; from < 2; from++) {
    Connection link = world.connect(from);
    // Expect: as many lanes as ever, of which one stands in, on this side alone.
    CHECK((from == 0 ? link.recv->peering() : link.send->peering()).lane(1).rail() == 0);
    CHECK((from == 0 ? link.send->peering() : link.recv->peering()).lane(1).rail() == 1);
    Buffer out(*link.send, kLarge), in(*link.recv, kLarge);
    fillPattern(out.data(), kLarge, 3);
    const ReceiveSpec spec{in.data(), kLarge, 1, in.handle(), nullptr};
    const Posted got = link.recv->irecv(std::span(&spec, 1));
    world.pump(10);
    CHECK(link.send->isend(out.data(), kLarge, 1, out.handle(), nullptr).request);
    world.pump(10);
    CHECK(link.recv->testRequest(got.request, nullptr).done);
    CHECK(firstMismatch(in.data(), kLarge, 3) == kLarge);
    for (size_t lane = 0; lane < 2; lane++) CHECK(link.send->peering().lane(lane).up());
  }
  CHECK(log.text().find("rail loop1 to node0 pid 1000 goes over loop0: ") != std::string::npos);
}
