// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <memory>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Comms of several communicators share an engine and what its completion queues hold. One whose receives wait
// for what another one has yet to do leaves that one enough to do it.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

constexpr size_t kBytes = 10'000;  // above what leaves eagerly
constexpr uint32_t kNotifications = 128;
constexpr int kRails = 4;

WorldOptions narrow() {
  WorldOptions options;
  for (int i = 0; i < 2; i++) {
    loop::LoopOptions fabric;
    fabric.rails = options.rails[i] = kRails;
    fabric.maxDepths.notifications = kNotifications;
    options.transports[i] = loop::makeTransport(fabric);
  }
  options.config.eagerMaxBytes = 0;
  return options;
}

// One connection of a communicator, from side 0 to side 1.
struct Channel {
  explicit Channel(World& in)
      : world(in), link(in.connect(0)), from(*link.send, kBytes), to(*link.recv, kBytes) {
    fillPattern(from.data(), kBytes, 1);
    world.pump();  // the memory is announced
  }
  void receive(size_t count) {
    for (size_t i = 0; i < count; i++) {
      const ReceiveSpec spec{to.data(), kBytes, 1, to.handle(), nullptr};
      const Posted posted = link.recv->irecv(std::span(&spec, 1));
      REQUIRE(posted.request);
      receives.push_back(posted.request);
    }
    world.pump(3);
  }
  // As NCCL's threads do, for one message after the other. False: some has not come.
  bool step() {
    if (receives.empty()) return true;
    if (!sent) sent = link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request;
    if (sent && link.send->test(sent, nullptr).done) sent = nullptr;
    if (link.recv->test(receives.front(), nullptr).done) receives.erase(receives.begin());
    return receives.empty();
  }
  bool carriesAll() {
    for (int i = 0; i < 2000 && !step(); i++) world.pump();
    return receives.empty() && firstMismatch(to.data(), kBytes, 1) == kBytes;
  }

  World& world;
  Connection link;
  Buffer from, to;
  std::vector<Request*> receives;
  Request* sent = nullptr;
};

}  // namespace

TEST_CASE("receives of one communicator, however many, leave room for one of each other one") {
  World world(narrow());
  Channel greedy(world);
  std::vector<std::unique_ptr<Channel>> others;
  for (int i = 0; i < 8; i++) others.push_back(std::make_unique<Channel>(world));
  greedy.receive(100);
  // Expect: each has its turn, though those before it have a receive that is told and not filled.
  for (auto& other : others) other->receive(1);
  for (auto& other : others) CHECK(other->carriesAll());
  for (auto& other : others) other->receive(2);
  for (auto& other : others) CHECK(other->carriesAll());
  CHECK(greedy.carriesAll());
}

TEST_CASE("what is kept for a comm is there for the others when it is closed") {
  World world(narrow());
  world.clock().whileSleeping = [&] { world.pump(); };
  Channel greedy(world);
  {
    std::vector<std::unique_ptr<Channel>> others;
    for (int i = 0; i < 8; i++) others.push_back(std::make_unique<Channel>(world));
    for (auto& other : others) other->receive(1);
    for (auto& other : others) CHECK(other->carriesAll());
  }
  world.pump(3);
  const uint64_t before = world.side(1).engine->counters().ctsOut;
  greedy.receive(100);
  CHECK(world.side(1).engine->counters().ctsOut - before == kNotifications / kRails);
}

TEST_CASE("more comms than there are notifications have theirs in turn") {
  World world(narrow());
  std::vector<std::unique_ptr<Channel>> all;
  for (uint32_t i = 0; i < kNotifications / kRails + 4; i++) all.push_back(std::make_unique<Channel>(world));
  for (auto& one : all) one->receive(2);
  bool done = false;
  for (int i = 0; i < 5000 && !done; i++) {
    done = true;
    for (auto& one : all) done = one->step() && done;
    world.pump();
  }
  CHECK(done);
}
