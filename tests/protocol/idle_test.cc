// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "src/core/session.h"
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
  Router router(configOfTests());
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
