// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// Messages where a post is a system call (src/core/gathering.h): the first leaves at once, those close behind
// it leave together. The sender's passes and tests are made one by one here.
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

namespace weft::core {
namespace {

using namespace weft::test;

constexpr int kMostPasses = 16;  // for which a message waits
constexpr size_t kSmall = 8, kLarge = 6000;
constexpr size_t kMostTogether = 256 << 10;  // of direct messages

WorldOptions overCalls() {
  loop::LoopOptions fabric;
  fabric.postIsCall = true;
  WorldOptions options;
  for (auto& transport : options.transports) transport = loop::makeTransport(fabric);
  return options;
}

struct Stage {
  World world{overCalls()};
  Connection link = world.connect(0);
  Buffer from{*link.send, kLarge}, to{*link.recv, 8 * kLarge};
  std::vector<Request*> receiving, sending;

  explicit Stage(size_t messages) {
    for (size_t i = 0; i < messages; i++) {
      const ReceiveSpec spec{to.data() + i % 8 * kLarge, kLarge, 1, to.handle(), nullptr};
      receiving.push_back(link.recv->irecv(std::span(&spec, 1)).request);
    }
    world.pump(3);
  }
  void send(size_t bytes) {
    sending.push_back(link.send->isend(from.data(), bytes, 1, from.handle(), nullptr).request);
    REQUIRE(sending.back());
  }
  // What is here after passes of the receiver alone.
  size_t arrived() {
    for (int i = 0; i < 3; i++) world.progress(1);
    size_t count = 0;
    while (count < receiving.size() && link.recv->testRequest(receiving[count], nullptr).done) count++;
    receiving.erase(receiving.begin(), receiving.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }
};

TEST_CASE("the first small message leaves at once, and the test of another one sends the rest") {
  Stage stage(4);
  for (int i = 0; i < 4; i++) stage.send(kSmall);
  CHECK(stage.arrived() == 1);
  CHECK(stage.link.send->testRequest(stage.sending[1], nullptr).done);
  CHECK(stage.arrived() == 3);
}

TEST_CASE("the test of a message that has left sends none of those behind it") {
  Stage stage(5);
  for (int i = 0; i < 3; i++) stage.send(kSmall);
  CHECK(stage.link.send->testRequest(stage.sending[1], nullptr).done);
  stage.send(kSmall);
  stage.send(kSmall);
  CHECK(stage.link.send->testRequest(stage.sending[2], nullptr).done);
  CHECK(stage.arrived() == 3);
  CHECK(stage.link.send->testRequest(stage.sending[4], nullptr).done);
  CHECK(stage.arrived() == 2);
}

TEST_CASE("passes send what waits, though nobody tests it") {
  Stage stage(4);
  for (int i = 0; i < 3; i++) stage.send(kSmall);
  stage.world.progress(0);
  stage.send(kSmall);
  CHECK(stage.arrived() == 1);
  for (int i = 0; i < kMostPasses; i++) stage.world.progress(0);
  CHECK(stage.arrived() == 3);
}

TEST_CASE("messages that join hold up those that wait, but not for ever") {
  constexpr int kMostInAll = 64, kApart = 4, kJoin = kMostInAll / kApart;
  Stage stage(1 + kJoin);
  stage.send(kSmall);
  for (int i = 0; i < kJoin; i++) {
    CHECK(stage.arrived() == (i == 0 ? 1 : 0));
    stage.send(kSmall);
    for (int pass = 0; pass < kApart; pass++) stage.world.progress(0);
  }
  CHECK(stage.arrived() == kJoin);
}

TEST_CASE("a message that is not close behind another one leaves at once") {
  Stage stage(2);
  stage.send(kSmall);
  for (int i = 0; i < kMostPasses; i++) stage.world.progress(0);
  stage.send(kSmall);
  CHECK(stage.arrived() == 2);
}

TEST_CASE("a message that is not small takes along what waits, and overtakes nobody") {
  Stage stage(3);
  stage.send(kSmall);
  stage.send(kSmall);
  stage.send(kLarge);
  stage.world.progress(0);
  CHECK(stage.arrived() == 3);
}

TEST_CASE("where tests find a message waiting alone the next ones leave at once") {
  Stage stage(4);
  stage.send(kSmall);
  stage.send(kSmall);
  CHECK(stage.link.send->testRequest(stage.sending[1], nullptr).done);
  stage.send(kSmall);
  stage.send(kSmall);
  CHECK(stage.arrived() == 4);
}

TEST_CASE("large messages that go directly wait for each other, too, but for the largest") {
  loop::LoopOptions fabric;
  fabric.postIsCall = fabric.messages = true;
  fabric.landing = loop::Landing::whenPolled;
  fabric.delivery = Delivery::accepted;
  WorldOptions options;
  for (auto& transport : options.transports) transport = loop::makeTransport(fabric);
  World world(options);
  Connection link = world.connect(0);
  Buffer from(*link.send, 2 * kMostTogether), to(*link.recv, 2 * kMostTogether);
  for (int i = 0; i < 4; i++) {
    const ReceiveSpec spec{to.data(), 2 * kMostTogether, 1, to.handle(), nullptr};
    REQUIRE(link.recv->irecv(std::span(&spec, 1)).request);
  }
  world.pump(5);
  std::vector<Request*> sending;
  const auto send = [&](size_t bytes) {
    sending.push_back(link.send->isend(from.data(), bytes, 1, from.handle(), nullptr).request);
    REQUIRE(sending.back());
    return world.side(0).engine->counters().directOut;
  };
  const auto arrived = [&] {
    for (int i = 0; i < 3; i++) world.progress(1);
    return world.side(1).engine->counters().directIn;
  };
  CHECK(send(kMostTogether) == 1);
  CHECK(send(kMostTogether) == 2);
  CHECK(send(kMostTogether) == 3);
  CHECK(arrived() == 1);
  SECTION("until one that waits is tested") {
    CHECK(link.send->testRequest(sending[2], nullptr).done);
    CHECK(arrived() == 3);
  }
  SECTION("until one comes that is worth a call of its own") {
    CHECK(send(kMostTogether + 1) == 4);
    world.progress(0);
    CHECK(arrived() == 4);
  }
}

TEST_CASE("nothing waits for others when no credit is left") {
  constexpr size_t kMany = 3 * kEagerSlotsPerPeering;
  Stage stage(kMany);
  size_t came = 0;
  for (size_t i = 0; i < kMany;) {
    Request* request =
        stage.link.send->isend(stage.from.data(), kSmall, 1, stage.from.handle(), nullptr).request;
    i += request != nullptr;
    if (request) continue;
    stage.world.progress(0);
    const size_t arrived = stage.arrived();
    REQUIRE(arrived > 0);
    came += arrived;
  }
  for (int i = 0; i < kMostPasses; i++) stage.world.progress(0);
  CHECK(came + stage.arrived() == kMany);
}

TEST_CASE("a message that another one follows leaves with it") {
  Stage stage(3);
  const auto followed = [&] {
    return stage.link.send->isendFollowed(stage.from.data(), kSmall, 1, stage.from.handle()).request;
  };
  REQUIRE(followed());
  CHECK(stage.arrived() == 0);
  SECTION("when the sender says so") {
    stage.send(kSmall);
    CHECK(stage.arrived() == 0);
    stage.link.send->leaveNow();
    CHECK(stage.arrived() == 2);
  }
  SECTION("or with the next poll, though nothing followed") {
    stage.world.progress(0);
    CHECK(stage.arrived() == 1);
    stage.send(kSmall);
    CHECK(stage.arrived() == 1);
  }
  SECTION("also one that is not small") {
    stage.send(kLarge);
    stage.link.send->leaveNow();
    stage.world.pump(3);
    CHECK(stage.arrived() == 2);
  }
}

TEST_CASE("a receive can be asked for what has come, without a poll") {
  Stage stage(1);
  stage.send(kSmall);
  CHECK_FALSE(testArrived(stage.receiving[0], nullptr).done);
  stage.world.progress(1);
  int size = 0;
  CHECK(testArrived(stage.receiving[0], &size).done);
  CHECK(size == int{kSmall});
}

}  // namespace
}  // namespace weft::core
