// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <thread>

#include "tests/unit/control_sockets.h"
#include "tests/unit/control_support.h"

using namespace weft;
using namespace weft::control;
using Clk = std::chrono::steady_clock;

namespace {

// Threads that help all the time, so that the control thread finds its mail taken again and again.
class Helpers {
 public:
  Helpers(std::vector<Hub*> hubs, int threads) {
    for (int i = 0; i < threads; i++)
      threads_.emplace_back([this, hubs] {
        while (!stop_)
          for (Hub* hub : hubs) hub->runInline();
      });
  }
  ~Helpers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Remembers whether its maker's thread was asked to tick.
class TickOfMine : public Recorder {
 public:
  Milliseconds onTick(TimePoint now) override {
    if (std::this_thread::get_id() == me_) mine_ = true;
    return Recorder::onTick(now);
  }
  bool mine() const { return mine_; }

 private:
  const std::thread::id me_ = std::this_thread::get_id();
  std::atomic<bool> mine_{false};
};

}  // namespace

TEST_CASE("who calls help does the control thread's work himself") {
  Side a;
  std::atomic<bool> byMe{false};
  const auto me = std::this_thread::get_id();
  REQUIRE(eventually([&] {
    a.hub->post([&] { byMe = byMe || std::this_thread::get_id() == me; });
    a.hub->runInline();
    return byMe.load();
  }));
}

TEST_CASE("who calls help ticks himself where that is due") {
  const auto heard = std::make_shared<TickOfMine>();
  HubOptions options;
  options.config.socketIfname = "=lo";
  options.handler = heard;
  auto hub = Hub::create(std::move(options));
  REQUIRE(hub);
  REQUIRE(eventually([&] {
    (*hub)->wake();
    (*hub)->runInline();
    return heard->mine();
  }));
}

TEST_CASE("calls, replies and messages arrive while others help") {
  Side a, b;
  auto listener = b.listen();
  const Helpers helpers({a.hub.get(), b.hub.get()}, 2);
  PeerRef near;
  for (int i = 0; i < 100; i++) near = connect(*a.hub, *b.hub, *listener).near;
  for (int i = 0; i < 100; i++) near->send(20, bytesOf(std::to_string(i)));
  REQUIRE(eventually([&] { return b.heard->count() == 100; }));
  const auto messages = b.heard->messages();
  for (size_t i = 0; i < messages.size(); i++) CHECK(textOf(messages[i].body) == std::to_string(i));
}

TEST_CASE("help takes away neither ticks nor deadlines") {
  Config config;
  config.connectTimeout = config.acceptTimeout = Milliseconds(100);
  Side a(config), b;
  auto listener = b.listen();  // takes nothing
  const Helpers helpers({a.hub.get()}, 1);
  for (int i = 0; i < 50; i++) {
    const int before = a.heard->ticks();
    a.hub->wake();
    REQUIRE(eventually([&] { return a.heard->ticks() > before; }));
  }
  for (int i = 0; i < 3; i++) {
    const auto start = Clk::now();
    auto call = a.hub->call(listener->handle(), {});
    REQUIRE(decided(*call));
    CHECK(call->state() == Call::State::failed);
    CHECK(Clk::now() - start < milliseconds(2000));
  }
}

// Who helps once has taken the mail that would have woken the control thread for the call's deadline.
TEST_CASE("a deadline passes in time though who helped to set it helps no more") {
  Config config;
  config.connectTimeout = Milliseconds(100);
  Side b;
  Handle handle = b.listen()->handle();
  SocketAddress silent;
  const Fd raw = listenRaw(&silent);
  handle.addresses = {silent};
  for (int i = 0; i < 10; i++) {
    Side a(config);
    REQUIRE(eventually([&] { return a.heard->ticks() > 0; }));  // it sleeps for seconds then
    const auto start = Clk::now();
    auto call = a.hub->call(handle, {});
    a.hub->runInline();
    REQUIRE(decided(*call));
    CHECK(Clk::now() - start < milliseconds(2000));
  }
}

TEST_CASE("a hub that was helped closes as fast as any") {
  for (int i = 0; i < 20; i++) {
    auto a = std::make_unique<Side>();
    Side b;
    auto listener = b.listen();
    connect(*a->hub, *b.hub, *listener);
    for (int n = 0; n < 10; n++) a->hub->runInline();
    const auto start = Clk::now();
    a.reset();
    CHECK(Clk::now() - start < milliseconds(1000));
  }
}
