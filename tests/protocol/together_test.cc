// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// Small messages where a post is a system call: the first since the sender's last pass leaves at once, those
// behind it leave together. The sender's passes and tests are made one by one here.
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

namespace weft::core {
namespace {

using namespace weft::test;

constexpr size_t kSmall = 8, kLarge = 6000;

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
      const ReceiveSpec spec{to.data() + i * kLarge, kLarge, 1, to.handle(), nullptr};
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

TEST_CASE("a pass sends what waits, though nobody tests it") {
  Stage stage(3);
  for (int i = 0; i < 3; i++) stage.send(kSmall);
  stage.world.progress(0);
  CHECK(stage.arrived() == 3);
}

TEST_CASE("a message that is not small waits for nobody, and overtakes nobody") {
  Stage stage(3);
  stage.send(kSmall);
  stage.send(kSmall);
  stage.send(kLarge);
  stage.world.progress(0);
  CHECK(stage.arrived() == 3);
}

}  // namespace
}  // namespace weft::core
