// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <thread>

#include "providers/loop/transport.h"
#include "src/core/runtime.h"
#include "tests/support/catch.h"

// Which contexts share their engines, and with them the lanes to every peer.
using namespace weft;
using namespace weft::core;

namespace {

struct Process {
  Process() {
    NetOptions options;
    options.transport = loop::makeTransport({});
    auto made = Net::create(std::move(options));
    REQUIRE(made);
    net = *made;
    auto living = net->runtime();
    REQUIRE(living);
    runtime = *living;
  }

  ContextRef rankOf(uint64_t communicator, int trafficClass = -1) const {
    ContextOptions options;
    options.perCommunicator = true;
    options.communicator = communicator;
    options.trafficClass = trafficClass;
    return net->openContext(std::move(options));
  }
  uint32_t engineOf(const ContextRef& context) const {
    auto engine = runtime->engineFor(context, 0);
    REQUIRE(engine);
    return (*engine)->id();
  }

  std::shared_ptr<Net> net;
  std::shared_ptr<Runtime> runtime;
};

}  // namespace

TEST_CASE("a second communicator has the engines of the first, also after that was closed") {
  const Process process;
  ContextRef first = process.rankOf(1);
  const uint32_t engine = process.engineOf(first);
  const ContextRef second = process.rankOf(2);
  CHECK(process.engineOf(second) == engine);
  first.reset();
  CHECK(process.engineOf(second) == engine);
  CHECK(process.engineOf(process.rankOf(3)) == engine);
}

TEST_CASE("ranks of one communicator in one process have engines of their own, by their seats") {
  const Process process;
  const ContextRef first = process.rankOf(1);
  ContextRef second = process.rankOf(1);
  CHECK(first->seat() == 0);
  CHECK(second->seat() == 1);
  const uint32_t theirs = process.engineOf(second);
  CHECK(process.engineOf(first) != theirs);
  // Event: the rank goes, another one comes. Expect: it takes the seat that is free.
  second.reset();
  const ContextRef third = process.rankOf(1);
  CHECK(third->seat() == 1);
  CHECK(process.engineOf(third) == theirs);
}

TEST_CASE("contexts of different traffic classes share nothing") {
  const Process process;
  const ContextRef plain = process.rankOf(1);
  const ContextRef marked = process.rankOf(2, 3);
  CHECK(process.engineOf(plain) != process.engineOf(marked));
}

// The hub may look at the engine at this moment and hold it for that long.
TEST_CASE("a context of an older table keeps no engine") {
  const Process process;
  const ContextRef shared = process.net->openContext({});
  auto engine = process.runtime->engineFor(shared, 0);
  REQUIRE(engine);
  const std::weak_ptr<Engine> left = *engine;
  engine->reset();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!left.expired() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  CHECK(left.expired());
}
