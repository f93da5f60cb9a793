// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <functional>
#include <future>
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

// A fabric that takes its time to open a card; meanwhile the test looks around.
class SlowToOpen final : public Transport {
 public:
  std::string name() const override { return fabric_->name(); }
  std::string version() const override { return fabric_->version(); }
  Result<std::vector<DeviceInfo>> discover() override { return fabric_->discover(); }
  std::vector<Refusal> refusals() const override { return fabric_->refusals(); }
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override {
    if (whileOpening) whileOpening();
    return fabric_->open(info);
  }
  std::function<void()> whileOpening;

 private:
  std::shared_ptr<Transport> fabric_ = loop::makeTransport({});
};

constexpr std::chrono::seconds kLong{10};

}  // namespace

TEST_CASE("while a fabric opens a card other calls go on") {
  auto fabric = std::make_shared<SlowToOpen>();
  NetOptions options;
  options.transport = fabric;
  auto net = Net::create(std::move(options));
  REQUIRE(net);
  auto runtime = (*net)->runtime();
  REQUIRE(runtime);
  std::future<bool> other;
  fabric->whileOpening = [&] {
    other = std::async(std::launch::async, [&] { return (*runtime)->connecting(); });
    CHECK(other.wait_for(kLong) == std::future_status::ready);
  };
  REQUIRE((*runtime)->engineFor((*net)->openContext({}), 0));
  REQUIRE(other.valid());
}

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
