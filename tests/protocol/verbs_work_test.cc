// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"
#include "tests/support/fake_verbs.h"

// What a message costs in calls and work requests, counted where libibverbs would be.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

constexpr size_t kBytes = 256 << 10;
constexpr uint64_t kMessages = 300;
constexpr uint64_t kLaneWorks = 126;

WorldOptions over(FakeVerbs& fake, std::vector<int> left, std::vector<int> right, WorldOptions options = {}) {
  options.rails[0] = static_cast<int>(left.size());
  options.rails[1] = static_cast<int>(right.size());
  options.transports[0] = fake.transport(std::move(left), options.config);
  options.transports[1] = fake.transport(std::move(right), options.config);
  return options;
}

void finish(World& world, CommBase& comm, Request* request) {
  for (int turn = 0; turn < 1000; turn++) {
    const Tested tested = comm.testRequest(request, nullptr);
    REQUIRE(tested.ok);
    if (tested.done) return;
    world.pump();
  }
  FAIL("a message does not end");
}

// One at a time, each verified.
void sendAll(World& world, const Connection& link) {
  Buffer out(*link.send, kBytes), in(*link.recv, kBytes);
  for (uint64_t i = 0; i < kMessages; i++) {
    fillPattern(out.data(), kBytes, i);
    const ReceiveSpec spec{in.data(), kBytes, 0, in.handle(), nullptr};
    const Posted receiving = link.recv->irecv(std::span(&spec, 1));
    REQUIRE(receiving.request);
    Posted sending;
    for (int turn = 0; turn < 1000 && !sending.request; turn++) {
      world.pump();
      sending = link.send->isend(out.data(), kBytes, 0, out.handle(), nullptr);
    }
    REQUIRE(sending.request);
    finish(world, *link.recv, receiving.request);
    finish(world, *link.send, sending.request);
    REQUIRE(firstMismatch(in.data(), kBytes, i) == kBytes);
  }
}

FakeVerbs::Asked askedOf(FakeVerbs& fake, int card) {
  FakeVerbs::Asked sum;
  for (const uint32_t pair : fake.pairsOf(card)) {
    const FakeVerbs::Asked one = fake.asked(pair);
    sum.posts += one.posts;
    sum.requests += one.requests;
    sum.signalled += one.signalled;
    sum.inlined += one.inlined;
    sum.notifications += one.notifications;
    sum.bytes += one.bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE(
    "over verbs a message is one call and one signalled work, its CTS an inline write that mostly asks for "
    "none") {
  FakeVerbs fake;
  World world(over(fake, {0}, {1}));
  const Connection link = world.connect(0);
  fake.resetCounts();
  sendAll(world, link);
  const auto data = askedOf(fake, 0), lines = askedOf(fake, 1);
  CHECK(data.posts == kMessages);
  CHECK(data.requests == kMessages);
  CHECK(data.signalled == kMessages);
  CHECK(data.notifications == kMessages);
  CHECK(data.bytes == kMessages * kBytes);
  CHECK(lines.posts == kMessages);
  CHECK(lines.requests == kMessages);
  CHECK(lines.inlined == kMessages);
  CHECK(lines.signalled >= 1);
  CHECK(lines.signalled <= kMessages / (kLaneWorks / 2));
}

TEST_CASE("where data and notification go apart a message is still one call and one signalled work") {
  FakeVerbs fake;
  WorldOptions options;
  options.config.ibAdaptiveRouting = 1;
  World world(over(fake, {0}, {1}, std::move(options)));
  const Connection link = world.connect(0);
  fake.resetCounts();
  sendAll(world, link);
  const auto data = askedOf(fake, 0);
  CHECK(data.posts == kMessages);
  CHECK(data.requests == 3 * kMessages);
  CHECK(data.signalled == kMessages);
  CHECK(data.bytes == kMessages * kBytes);
  CHECK(askedOf(fake, 1).requests == kMessages);
}

TEST_CASE("over two rails of verbs a message is one call and one signalled work on each") {
  FakeVerbs fake;
  World world(over(fake, {0, 2}, {1, 3}));
  const Connection link = world.connect(0);
  fake.resetCounts();
  sendAll(world, link);
  for (const int card : {0, 2}) {
    const auto data = askedOf(fake, card);
    CHECK(data.posts == kMessages);
    CHECK(data.requests == kMessages);
    CHECK(data.signalled == kMessages);
  }
  CHECK(askedOf(fake, 0).bytes + askedOf(fake, 2).bytes == kMessages * kBytes);
}

// Cards drop without a word what comes to a queue pair that is not ready to receive, and repeat it a second
// later at the earliest.
TEST_CASE("nothing is written over verbs before the peer's queue pair can receive") {
  FakeVerbs fake;
  const int late = GENERATE(0, 1);
  fake.receivesLate(late, std::chrono::milliseconds(30));
  const bool eager = GENERATE(false, true);
  World world(over(fake, {0, 2}, {1, 3}));
  const Connection link = world.connect(0);
  Buffer out(*link.send, kBytes), in(*link.recv, kBytes);
  const size_t bytes = eager ? 64 : kBytes;
  const ReceiveSpec spec{in.data(), bytes, 0, in.handle(), nullptr};
  const Posted receiving = link.recv->irecv(std::span(&spec, 1));
  REQUIRE(receiving.request);
  Posted sending;
  for (int turn = 0; turn < 1000 && !sending.request; turn++) {
    sending = link.send->isend(out.data(), bytes, 0, out.handle(), nullptr);
    world.pump();
  }
  REQUIRE(sending.request);
  finish(world, *link.recv, receiving.request);
  finish(world, *link.send, sending.request);
  CHECK(fake.tooEarly == 0);
}

TEST_CASE("a connection over one rail outlives a flap of its port, and one over two uses the other one") {
  FakeVerbs fake;
  const bool two = GENERATE(false, true);
  World world(two ? over(fake, {0, 2}, {1, 3}) : over(fake, {0}, {1}));
  const Connection link = world.connect(0);
  fake.happens(0, IBV_EVENT_PORT_ERR);
  const auto noticed = [&] {
    world.pump();
    return link.send->peering().lane(0).falters();
  };
  for (int turn = 0; turn < 1000 && !noticed(); turn++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(noticed());
  fake.resetCounts();
  sendAll(world, link);
  CHECK((askedOf(fake, 0).requests == 0) == two);
  CHECK_FALSE(link.send->failed());
  fake.happens(0, IBV_EVENT_PORT_ACTIVE);
  for (int turn = 0; turn < 1000 && noticed(); turn++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(link.send->peering().lane(0).carries());
}

// The habits of real cards together: the order in which they meet is the machine's.
TEST_CASE("with all that real cards do otherwise at once, messages arrive whole") {
  FakeVerbs fake;
  fake.tellsLength = false;
  fake.apart = verbs::Apart::always;
  fake.dropsEarly = true;
  fake.batch = 5;
  fake.saysLast = false;
  fake.room = 200;
  fake.receivesLate(1, std::chrono::milliseconds(10));
  for (const int card : {0, 1, 2, 3})
    fake.setReached(
        card, {"::ffff:192.0.2." + std::to_string(card + 1), 0, false, "fd99::" + std::to_string(card + 1)});
  WorldOptions options;
  options.config.qpsPerConnection = 2;
  World world(over(fake, {0, 2}, {1, 3}, std::move(options)));
  const Connection link = world.connect(0);
  for (int round = 0; round < 3; round++) {
    fake.setReached(0, {"::ffff:192.0.2.1"});  // nobody uses the other one
    fake.happens(0, IBV_EVENT_GID_CHANGE);
    fake.happens(2, IBV_EVENT_PORT_ERR);
    sendAll(world, link);
    fake.happens(2, IBV_EVENT_PORT_ACTIVE);
    fake.setReached(0, {"::ffff:192.0.2.1", 0, false, "fd99::1", 3});
    fake.happens(0, IBV_EVENT_GID_CHANGE);
    sendAll(world, link);
  }
  CHECK(fake.tooEarly == 0);
  CHECK_FALSE(link.send->failed());
}
