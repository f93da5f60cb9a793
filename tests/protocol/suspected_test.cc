// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <memory>

#include "src/core/runtime.h"
#include "tests/protocol/kept_log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// The last lane to a peer is lost. A peer that closed properly has said so, but by the control link, and the
// fabric may be quicker: which it was is not decided before the peer has answered.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

constexpr size_t kBytes = 100'000;

void loseLane(World& world, CommBase& comm) {
  EngineEntry in(*world.side(0).engine, EngineEntry::wait);
  comm.peering().laneFailed(comm.peering().lane(0), "the connection was reset");
}

}  // namespace

TEST_CASE("a peer whose lane breaks before its goodbye is here has closed") {
  World world({});
  Connection link = world.connect(0);
  auto from = std::make_unique<Buffer>(*link.send, kBytes);
  auto to = std::make_unique<Buffer>(*link.recv, kBytes);
  const ReceiveSpec spec{to->data(), kBytes, 3, to->handle(), nullptr};
  const Posted got = link.recv->irecv(std::span(&spec, 1));
  world.pump();
  const Posted sent = link.send->isend(from->data(), kBytes, 3, from->handle(), nullptr);
  REQUIRE(sent.request);
  world.progress(1);  // only the receiver polls: the send is not confirmed
  REQUIRE(link.recv->testRequest(got.request, nullptr).done);
  to.reset();
  link.recv->close();

  loseLane(world, *link.send);
  // Expect: nothing is decided, and calls say "later".
  CHECK_FALSE(link.send->failed());
  const Posted more = link.send->isend(from->data(), 8, 3, from->handle(), nullptr);
  CHECK(more.ok);
  CHECK_FALSE(more.request);

  world.deliverMessages();
  // Expect: the receiver had everything, so the send is done.
  const Tested tested = link.send->testRequest(sent.request, nullptr);
  CHECK(tested.ok);
  CHECK(tested.done);
  CHECK_FALSE(link.send->failed());
}

TEST_CASE("a process that closed and left ends nobody, whatever is seen of it first") {
  KeptLog log;
  World world({});
  Connection link = world.connect(0);
  world.pump();
  link.recv->close();
  // Event: the process is known to be gone, and its last words wait to be read as its lane breaks.
  world.side(0).other->living = false;
  loseLane(world, *link.send);
  CHECK_FALSE(link.send->failed());

  world.deliverMessages();
  CHECK_FALSE(link.send->failed());
  // Expect: a comm that nobody needs any more ends without a word.
  CHECK(log.text().find(" ended: ") == std::string::npos);
}

TEST_CASE("a peer that answers has not closed: its lane is lost") {
  World world({});
  Connection link = world.connect(0);
  Connection back = world.connect(1);
  Buffer here(*back.recv, kBytes);
  loseLane(world, *link.send);
  CHECK_FALSE(link.send->failed());
  const ReceiveSpec spec{here.data(), kBytes, 3, here.handle(), nullptr};
  const Posted later = back.recv->irecv(std::span(&spec, 1));
  CHECK(later.ok);
  CHECK_FALSE(later.request);

  world.deliverMessages();
  // Expect: both comms over it fail, and say which rail and why.
  CHECK(link.send->failed());
  CHECK(back.recv->failed());
  CHECK(link.send->error().message().find("the connection was reset") != std::string::npos);
}

TEST_CASE("a peer that does not answer leaves no doubt for long") {
  World world({});
  Connection link = world.connect(0);
  loseLane(world, *link.send);
  world.dropMessages = true;
  world.messages.clear();
  world.clock().advance(kSuspicion - Milliseconds(1));
  world.watch(0);
  CHECK_FALSE(link.send->failed());
  world.clock().advance(Milliseconds(2));
  world.watch(0);
  CHECK(link.send->failed());
}

TEST_CASE("an answer to an older question ends no doubt") {
  World world({});
  Connection link = world.connect(0);
  const auto before = static_cast<uint64_t>(world.clock().now().time_since_epoch().count());
  world.clock().advance(Milliseconds(1));
  loseLane(world, *link.send);
  world.messages.clear();
  {
    EngineEntry in(*world.side(1).engine, EngineEntry::wait);
    link.recv->peering().tell(MessageType::tellPolled, CommMessage{0, before});
  }
  world.deliverMessages();
  CHECK_FALSE(link.send->failed());
}

TEST_CASE("who asks for an engine that is closed is told so") {
  World world({});
  Router router(Config{}, std::make_shared<PendingTable>());
  ByteWriter question;
  EngineHeader{4711, 12}.encode(&question);
  encodeBody(&question, CommMessage{0, 1});
  const Bytes body = question.take();
  router.onMessage(world.side(0).other, static_cast<uint16_t>(MessageType::askPolled), body);
  REQUIRE(world.messages.size() == 1);
  CHECK(world.messages.front().type == static_cast<uint16_t>(MessageType::engineGone));
  ByteReader answer(world.messages.front().body);
  const EngineHeader header = EngineHeader::decode(&answer);
  CHECK(header.to == 12);
  CHECK(header.from == 4711);
  // Expect: so is who opens a connection to it, and nobody is told who did not ask.
  router.onMessage(world.side(0).other, static_cast<uint16_t>(MessageType::open), body);
  REQUIRE(world.messages.size() == 2);
  CHECK(world.messages.back().type == static_cast<uint16_t>(MessageType::engineGone));
  router.onMessage(world.side(0).other, static_cast<uint16_t>(MessageType::announce), body);
  CHECK(world.messages.size() == 2);
}

TEST_CASE("nothing is connected to a peer that is dead already") {
  World world({});
  world.side(0).other->living = false;
  EngineEntry in(*world.side(0).engine, EngineEntry::wait);
  const auto peering = world.side(0).engine->peering(world.side(0).other, 4711, 1);
  REQUIRE_FALSE(peering);
  CHECK(peering.error().detail() == "it died");
}

TEST_CASE("a watch that is due comes with the next tick where somebody else is inside") {
  World world({});
  Connection link = world.connect(0);
  const Config config;
  Router router(config, std::make_shared<PendingTable>());
  router.add(world.side(0).engine);
  const TimePoint start = world.clock().now() + config.laneTimeout;
  for (int i = 0; i < 20; i++) (void)router.onTick(start);
  const TimePoint due = start + config.railTimeout;
  EngineEntry inside(*world.side(0).engine, EngineEntry::wait);
  (void)router.onTick(due);  // hears that it was entered
  // Expect: it comes back soon, and does not take the look for done.
  for (int i = 1; i < 20; i++) CHECK(router.onTick(due + Milliseconds(2 * i)) == Milliseconds(2));
}

TEST_CASE("what a peering without comms died of is nothing to a new connection") {
  World world({});
  (void)world.connect(0);
  world.deliverMessages();
  for (int i = 0; i < 2; i++) {
    EngineEntry in(*world.side(i).engine, EngineEntry::wait);
    Peering& idle = *world.side(i).engine->peeringByNumber(0);
    idle.laneFailed(idle.lane(0), "the connection was reset");
  }
  world.deliverMessages();
  REQUIRE(world.side(0).engine->peeringByNumber(0)->ending());
  Connection link = world.connect(0);
  Buffer from(*link.send, 8), to(*link.recv, 8);
  CHECK(link.send->isend(from.data(), 8, 3, from.handle(), nullptr).request);
  const ReceiveSpec spec{to.data(), 8, 3, to.handle(), nullptr};
  const Posted got = link.recv->irecv(std::span(&spec, 1));
  world.pump(3);
  CHECK(link.recv->testRequest(got.request, nullptr).done);
}

TEST_CASE("peerings that come and go leave the room for eager messages as it was") {
  World world({});
  Engine& engine = *world.side(0).engine;
  EngineEntry in(engine, EngineEntry::wait);
  for (uint32_t remote = 1; remote <= 300; remote++) {
    const auto peering = engine.peering(world.side(0).other, 1000 + remote, 1);
    REQUIRE(peering);
    CHECK((*peering)->half().eagerSlots == kEagerSlotsPerPeering);
    (*peering)->peerEngineGone();
  }
}
