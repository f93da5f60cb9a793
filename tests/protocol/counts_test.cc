// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/transport.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// The traffic that a comm shows is exactly what a test made, by the way that it took.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

WorldOptions fabric(bool messages) {
  WorldOptions options;
  for (auto& transport : options.transports) {
    loop::LoopOptions loop;
    loop.messages = messages;
    if (messages) loop.landing = loop::Landing::whenPolled;
    transport = loop::makeTransport(loop);
  }
  return options;
}

void wait(World& world, CommBase& comm, Request* request) {
  for (int i = 0; i < 2000; i++) {
    const Tested tested = comm.testRequest(request, nullptr);
    REQUIRE(tested.ok);
    if (tested.done) return;
    world.pump();
  }
  FAIL("it is not done");
}

// `early`: the message leaves before its receive is posted.
void carry(World& world, Connection& link, size_t bytes, int times, bool early) {
  Buffer from(*link.send, bytes), to(*link.recv, bytes);
  const auto receive = [&] {
    const ReceiveSpec spec{to.data(), bytes, 4, to.handle(), nullptr};
    const Posted got = link.recv->irecv(std::span(&spec, 1));
    REQUIRE(got.request);
    return got.request;
  };
  for (int i = 0; i < times; i++) {
    Request* got = early ? nullptr : receive();
    Posted sent;
    for (int tries = 0; tries < 2000 && !sent.request; tries++) {
      sent = link.send->isend(from.data(), bytes, 4, from.handle(), nullptr);
      REQUIRE(sent.ok);
      if (!sent.request) world.pump();
    }
    REQUIRE(sent.request);
    wait(world, *link.send, sent.request);
    if (early) world.pump(3);
    wait(world, *link.recv, got ? got : receive());
  }
}

uint64_t of(const stats::CommLine& line, stats::Way way) {
  return line.ways[static_cast<size_t>(way)].get();
}

void checkClass(const stats::CommLine& line, size_t bytes, uint64_t times) {
  CHECK(line.sizes[stats::sizeClassOf(bytes)].messages.get() == times);
  CHECK(line.sizes[stats::sizeClassOf(bytes)].bytes.get() == times * bytes);
}

}  // namespace

TEST_CASE("eager and rendezvous messages are counted at both ends, each once") {
  World world(fabric(false));
  Connection link = world.connect(0);
  carry(world, link, 100, 5, false);
  carry(world, link, 100, 2, true);
  carry(world, link, 200'000, 3, false);
  for (const CommBase* comm :
       {static_cast<CommBase*>(link.send.get()), static_cast<CommBase*>(link.recv.get())}) {
    REQUIRE(comm->counters());
    const stats::CommLine& line = *comm->counters();
    CHECK(line.posted.get() == 10);
    CHECK(line.done.get() == 10);
    CHECK(of(line, stats::Way::eager) == 7);
    CHECK(of(line, stats::Way::rendezvous) == 3);
    CHECK(of(line, stats::Way::direct) + of(line, stats::Way::spilled) + of(line, stats::Way::none) == 0);
    checkClass(line, 100, 7);
    checkClass(line, 200'000, 3);
    CHECK(line.busySince.get() == 0);
    CHECK(line.records[9].bytes.get() == 200'000);
    CHECK(line.records[9].done.get() >= line.records[9].posted.get());
  }
  CHECK(link.recv->counters()->records[9].told.get() != 0);
}

TEST_CASE("direct messages are counted, and those that came before their receive apart") {
  World world(fabric(true));
  Connection link = world.connect(0);
  carry(world, link, 100'000, 4, false);
  carry(world, link, 100'000, 2, true);
  const stats::CommLine& sends = *link.send->counters();
  const stats::CommLine& receives = *link.recv->counters();
  CHECK(of(sends, stats::Way::direct) == 6);
  CHECK(of(receives, stats::Way::direct) == 4);
  CHECK(of(receives, stats::Way::spilled) == 2);
  checkClass(sends, 100'000, 6);
  checkClass(receives, 100'000, 6);
}

TEST_CASE("a send that has to wait for its receiver is seen to wait") {
  World world(fabric(false));
  Connection link = world.connect(0);
  Buffer from(*link.send, 200'000);
  CHECK(link.send->isend(from.data(), 200'000, 9, from.handle(), nullptr).request == nullptr);
  CHECK(link.send->counters()->waitsSince.get() != 0);
  CHECK(link.send->counters()->waitTag.get() == 9);
  carry(world, link, 200'000, 1, false);
  CHECK(link.send->counters()->waitsSince.get() == 0);
  CHECK(link.send->counters()->waited.get() > 0);
}

TEST_CASE("nothing is counted where that is switched off") {
  WorldOptions options = fabric(false);
  options.config.stats = false;
  World world(options);
  Connection link = world.connect(0);
  carry(world, link, 100, 1, false);
  CHECK(link.send->counters() == nullptr);
}
