// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>

#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "src/core/runtime.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// NCCL has nothing to do here and calls nothing: the control thread's ticks are all the polls there are.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

TEST_CASE("a message of a sender who calls nothing more leaves, though its fabric needs many polls") {
  constexpr size_t kBytes = 100;
  const std::shared_ptr<fault::FaultTransport> fabric = fault::makeTransport(loop::makeTransport({}));
  WorldOptions options;
  options.transports[0] = fabric;
  World world(std::move(options));
  Connection link = world.connect(0);
  Router router(configOfTests(), std::make_shared<PendingTable>());
  router.add(world.side(0).engine);
  Buffer from(*link.send, kBytes), to(*link.recv, kBytes);
  const auto send = [&] {
    REQUIRE(link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request);
  };
  const auto received = [&] {
    const ReceiveSpec spec{to.data(), kBytes, 1, to.handle(), nullptr};
    const Posted posted = link.recv->irecv(std::span(&spec, 1));
    REQUIRE(posted.request);
    Milliseconds passed{0};
    while (!link.recv->testRequest(posted.request, nullptr).done && passed < Milliseconds(5000)) {
      const Milliseconds pause = router.onTick(world.clock().now());
      world.clock().advance(pause);
      passed += pause;
      world.deliverMessages();
    }
    return passed;
  };

  send();  // the first completes, the others are quiet
  CHECK(received() < Milliseconds(100));
  fault::FaultRule slow;
  slow.kind = fault::FaultKind::delay;
  slow.op = fault::FaultOp::writeNotify;
  slow.count = 0;
  slow.polls = 100;
  fabric->control()->add(slow);
  for (int i = 0; i < 3; i++) {
    send();
    // Expect: as many ticks, and no more of them that are far apart.
    const Milliseconds passed = received();
    CHECK(passed >= Milliseconds(150));
    CHECK(passed < Milliseconds(400));
  }
  // Expect: nothing had to be asked for, and while nothing happens the ticks become rare.
  CHECK(world.side(0).engine->counters().eagerAgain == 0);
  for (int i = 0; i < 200; i++) world.clock().advance(router.onTick(world.clock().now()));
  CHECK(router.onTick(world.clock().now()) > Milliseconds(100));
}

namespace {

bool hasPeering(World& world, int side) {
  return world.side(side).engine->peeringByNumber(0) != nullptr;
}

void closeAndWatch(World& world, Connection* link, Milliseconds pause) {
  link->send->close();
  link->recv->close();
  world.deliverMessages();
  for (int i = 0; i < 2; i++) {  // the first look learns that it is idle
    for (const int side : {0, 1}) world.watch(side);
    world.deliverMessages();
    if (i == 0) world.clock().advance(pause);
  }
}

void prove(World& world, const Connection& link) {
  constexpr size_t kBytes = 100;
  Buffer from(*link.send, kBytes), to(*link.recv, kBytes);
  fillPattern(from.data(), kBytes, 7);
  const ReceiveSpec spec{to.data(), kBytes, 1, to.handle(), nullptr};
  Request* receiving = link.recv->irecv(std::span(&spec, 1)).request;
  world.pump(4);  // without eager buffers its CTS has to come first
  REQUIRE(link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request);
  world.pump(4);
  REQUIRE(link.recv->testRequest(receiving, nullptr).done);
  CHECK(firstMismatch(to.data(), kBytes, 7) == kBytes);
}

WorldOptions keeping(int peers) {
  WorldOptions options;
  options.config.idlePeers = peers;
  options.config.idleTime = Milliseconds(1000);
  return options;
}

// Side 0 asks, side 1 answers, and what side 0 says next never comes. Both give the connection up.
void connectInVain(World& world) {
  std::array<std::byte, control::kHandleBytes> handle{};
  auto listener = world.side(1).net->listen(world.side(1).context, 0, handle);
  REQUIRE(listener);
  world.dropMessages = true;
  for (int i = 0; i < 3; i++) {
    REQUIRE(world.side(0).net->connect(world.side(0).context, 0, handle));
    REQUIRE(world.side(1).net->accept(**listener));
  }
  for (const int side : {0, 1}) REQUIRE(hasPeering(world, side));
  world.side(0).runtime->pending().dropOf(world.side(0).context.get());
  listener->reset();
  world.dropMessages = false;
}

}  // namespace

TEST_CASE("lanes outlive their last connection, and the next one finds them") {
  World world(keeping(8));
  Connection link = world.connect(0);
  const Peering* peering = &link.send->peering();
  closeAndWatch(world, &link, Milliseconds(900));
  REQUIRE(hasPeering(world, 0));
  link = world.connect(0);
  CHECK(&link.send->peering() == peering);
  prove(world, link);
}

TEST_CASE("lanes that no connection has used for long end on both sides, and new ones come up") {
  World world(keeping(8));
  Connection link = world.connect(0);
  closeAndWatch(world, &link, Milliseconds(1100));
  CHECK_FALSE(hasPeering(world, 0));
  world.watch(1);  // it was told, and nobody uses them there either
  CHECK_FALSE(hasPeering(world, 1));
  world.deliverMessages();
  link = world.connect(1);
  prove(world, link);
}

TEST_CASE("more idle peers than the setting allows do not stay at all") {
  World world(keeping(0));
  Connection link = world.connect(0);
  closeAndWatch(world, &link, Milliseconds(0));
  CHECK_FALSE(hasPeering(world, 0));
}

TEST_CASE("no lanes end while a connection is being made from here") {
  World world(keeping(8));
  Connection link = world.connect(0);
  const TimePoint until = world.clock().now() + Milliseconds(6000);
  for (const int side : {0, 1}) {
    world.side(side).engine->connecting.begin();
    world.side(side).engine->connecting.asked(until);
  }
  closeAndWatch(world, &link, Milliseconds(5000));
  CHECK(hasPeering(world, 0));
  SECTION("it is made") {
    world.side(0).engine->connecting.end();
  }
  SECTION("NCCL has given it up without a word") {
    world.clock().advance(Milliseconds(2000));
  }
  world.watch(0);
  CHECK_FALSE(hasPeering(world, 0));
}

TEST_CASE("half a peering ends when a connection would have been given up") {
  World world(keeping(8));
  const Milliseconds limit = world.side(1).net->config().connectTimeout;
  connectInVain(world);
  CHECK(world.side(1).engine->peeringByNumber(0)->stage() == Stage::opening);
  world.watch(1);
  world.clock().advance(limit - Milliseconds(1));
  world.watch(1);
  CHECK(hasPeering(world, 1));
  world.clock().advance(Milliseconds(1));
  world.watch(1);
  CHECK_FALSE(hasPeering(world, 1));
  // Expect: the other end, which was never told which one it was, ends its own.
  REQUIRE(world.messages.size() == 1);
  const World::Message ended = world.messages.front();
  world.deliverMessages();
  CHECK(world.side(0).engine->peeringByNumber(0)->over());
  // Event: the same is said again when there are new ones. Expect: they are not meant.
  Connection link = world.connect(0);
  world.messages.push_back(ended);
  world.deliverMessages();
  CHECK_FALSE(link.send->peering().over());
  prove(world, link);
}

TEST_CASE("half a peering is of use to the next connection") {
  World world(keeping(8));
  connectInVain(world);
  const Peering* peering = world.side(1).engine->peeringByNumber(0);
  Connection link = world.connect(0);
  CHECK(&link.recv->peering() == peering);
  prove(world, link);
}

// Side 0 makes peering 0 with a half of side 1 that has ended since, and hears of that only afterwards.
TEST_CASE("lanes to a half that has ended are made anew when the peer answers with another one") {
  World world(keeping(8));
  Connection link = world.connect(0);
  const uint32_t before = link.recv->peering().life();
  link.send->close();
  link.recv->close();
  world.deliverMessages();
  {
    EngineEntry in(*world.side(1).engine, EngineEntry::wait);
    world.dropMessages = true;  // its word of it is on its way until the end
    world.side(1).engine->peeringByNumber(0)->end(
        {Ending::By::us, Error(Code::remote, "sending", "a cable was pulled")});
    world.dropMessages = false;
  }
  CHECK(world.side(0).engine->peeringByNumber(0)->stage() == Stage::open);
  link = world.connect(0);
  CHECK(link.recv->peering().life() > before);
  CHECK(link.send->peering().remoteLife() == link.recv->peering().life());
  prove(world, link);
}

TEST_CASE("eager buffers of all peers together stay within the setting") {
  WorldOptions options;
  options.config.eagerPoolMib = 0;
  World world(std::move(options));
  Connection link = world.connect(0);
  CHECK(link.send->peering().eagerIn().slots() == 0);
  prove(world, link);
}
