// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/world.h"

#include <algorithm>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "src/base/net/sockets.h"
#include "tests/support/catch.h"
#include "tools/world/control_net.h"
#include "tools/world/hub.h"
#include "tools/world/scheduler.h"

// What every world rests on: the scheduler, the control network, and that a seed is a run.
using namespace weft;
using namespace weft::world;
using namespace std::chrono_literals;

namespace {

// Two hubs in one scheduler, and what their handlers were told.
struct Told final : control::Handler {
  void onMessage(const control::PeerRef&, uint16_t type, std::span<const std::byte>) override {
    types.push_back(type);
  }
  void onPeerDead(const control::PeerRef& peer, const Error& reason) override {
    dead.push_back(peer->name() + ": " + reason.detail());
  }
  Milliseconds onTick(TimePoint) override { return 100ms; }
  std::vector<uint16_t> types;
  std::vector<std::string> dead;
};

struct TwoHubs {
  Journal journal;
  Scheduler scheduler{7, journal};
  ControlNet net{scheduler, 2, 50us};
  std::shared_ptr<Told> told[2] = {std::make_shared<Told>(), std::make_shared<Told>()};
  std::shared_ptr<control::Hub> hubs[2];
  control::PeerRef other;  // as rank 0 sees rank 1
  bool taken = false;

  TwoHubs() {
    for (int i = 0; i < 2; i++) {
      control::HubOptions options;
      options.handler = told[i];
      options.config.peerSilentWarn = 500ms;
      options.config.kernelTimeout = 2000ms;
      options.config.peerTimeout = 4000ms;
      hubs[i] = *net.makeHub(i, std::move(options));
    }
  }
  // Runs `body` as a thread of rank 0, then closes both hubs.
  void run(const std::function<void()>& body) {
    scheduler.start("test", 0, [&] {
      link();
      body();
      for (auto& hub : hubs) hub.reset();
      taken = true;
    });
    REQUIRE(scheduler.run([this] { return taken; }, scheduler.now() + 60s, 1'000'000));
  }
  void link() {
    auto listening = hubs[1]->listen();
    const auto listener = listening.take();
    auto call = hubs[0]->call(listener->handle(), Bytes(3));
    std::optional<control::Request> request;
    while (!request) {
      scheduler.sleep(10us);
      request = *listener->take();
    }
    CHECK(request->body.size() == 3);
    hubs[1]->reply(*request, Bytes(5));
    while (call->state() == control::Call::State::pending) scheduler.sleep(10us);
    REQUIRE(call->state() == control::Call::State::replied);
    CHECK(call->replyBody().size() == 5);
    other = call->peer();
  }
};

// Two hosts with a rail each, a listener on the second, and a task that talks.
struct TwoHosts {
  Journal journal;
  Scheduler scheduler{7, journal};
  PlayedTcp tcp;
  Fd listener;

  explicit TwoHosts(const TcpHabits& habits) : tcp(scheduler, journal, habits, true, 5) {
    for (const int host : {0, 1}) tcp.addRails(host, 1);
  }
  static TcpHabits near(uint64_t shortOf8) {
    TcpHabits habits;
    habits.on = true;
    habits.latency = 20us;
    habits.buffer = 5000;
    habits.shortOf8 = shortOf8;
    return habits;
  }
  SocketAddress addressOf(int host) {
    tcp.callsAs(host);
    return (*localInterfaces())[0].address;
  }
  void run(const std::function<void()>& body) {
    const SocketAddress at = addressOf(1);
    bool done = false;
    auto listening = listenOn(at, "listening");
    listener = listening.take();
    scheduler.start("test", 0, [&] {
      body();
      done = true;
    });
    REQUIRE(scheduler.run([&] { return done; }, scheduler.now() + 60s, 1'000'000));
    listener.reset();
    CHECK(tcp.complaint().empty());
    CHECK(tcp.open() == 0);
  }
  Fd dial() {
    auto fd = startConnecting(localAddress(listener.get()));
    return fd.take();
  }
  std::pair<Fd, Fd> connection() {
    Fd mine = dial();
    CHECK(receiveSome(mine.get(), {}).io == Io::again);
    CHECK(!acceptOne(listener.get()));
    scheduler.sleep(100us);
    auto other = acceptOne(listener.get());
    return {std::move(mine), other.take()};
  }
};

}  // namespace

TEST_CASE("a played stream gives and takes less than was asked for, and keeps its order") {
  TwoHosts two(TwoHosts::near(4));
  two.run([&] {
    auto [mine, other] = two.connection();
    Bytes sent(40'000), got;
    for (size_t i = 0; i < sent.size(); i++) sent[i] = static_cast<std::byte>(i * 31 >> 3);
    std::array<std::byte, 3000> piece;
    size_t at = 0, least = sent.size(), full = 0;
    while (got.size() < sent.size()) {
      const IoResult out = sendSome(mine.get(), std::span(sent).subspan(at));
      if (at < sent.size() && out.io == Io::again) full++;
      at += out.bytes;
      if (out.bytes > 0) least = std::min(least, out.bytes);
      const IoResult in = receiveSome(other.get(), piece);
      got.insert(got.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(in.bytes));
      two.scheduler.sleep(10us);
    }
    CHECK(got == sent);
    CHECK(least < 5000);
    CHECK(full > 0);
  });
}

TEST_CASE("a played connection ends in order, by a reset, or not at all") {
  TwoHosts two(TwoHosts::near(0));
  std::array<std::byte, 8> bytes{};
  two.run([&] {
    auto [mine, other] = two.connection();
    mine.reset();
    two.scheduler.sleep(50us);
    const IoResult end = receiveSome(other.get(), bytes);
    CHECK(end.io == Io::closed);
    CHECK(end.error == 0);
    CHECK(sendSome(other.get(), bytes).bytes == 8);  // nobody takes it, and that is told later
    two.scheduler.sleep(50us);
    CHECK(sendSome(other.get(), bytes).error == ECONNRESET);
    CHECK(sendSome(other.get(), bytes).error == EPIPE);

    auto [third, fourth] = two.connection();
    CHECK(sendSome(third.get(), bytes).bytes == 8);
    two.scheduler.sleep(50us);
    fourth.reset();  // with bytes that it has not read
    two.scheduler.sleep(50us);
    CHECK(receiveSome(third.get(), bytes).error == ECONNRESET);

    auto [fifth, sixth] = two.connection();
    two.tcp.down(1, 0, two.scheduler.now() + 1s);
    CHECK(sendSome(fifth.get(), bytes).bytes == 8);
    two.scheduler.sleep(900ms);
    CHECK(receiveSome(sixth.get(), bytes).io == Io::again);
    two.scheduler.sleep(200ms);
    CHECK(receiveSome(sixth.get(), bytes).bytes == 8);
  });
}

TEST_CASE("a played connection is shut one way, and poll waits for what comes") {
  TwoHosts two(TwoHosts::near(0));
  std::array<std::byte, 8> bytes{};
  two.run([&] {
    auto [mine, other] = two.connection();
    pollfd asked[] = {{mine.get(), POLLIN, 0}, {-1, POLLIN, 0}, {mine.get(), POLLOUT, 0}};
    CHECK(::poll(asked, 2, 3) == 0);
    CHECK(::poll(asked, 3, 3) == 1);
    CHECK(asked[2].revents == POLLOUT);
    CHECK(::shutdown(mine.get(), SHUT_WR) == 0);
    CHECK(sendSome(mine.get(), bytes).error == EPIPE);
    pollfd end{other.get(), POLLIN, 0};
    CHECK(::poll(&end, 1, 3) == 1);
    const IoResult said = receiveSome(other.get(), bytes);
    CHECK(said.io == Io::closed);
    CHECK(said.error == 0);
    CHECK(sendSome(other.get(), bytes).bytes == 8);
    CHECK(::poll(asked, 2, 3) == 1);
    CHECK(receiveSome(mine.get(), bytes).bytes == 8);
    const TimePoint before = two.scheduler.now();
    CHECK(::poll(asked, 2, 7) == 0);
    CHECK(two.scheduler.now() - before >= 7ms);
    CHECK(::shutdown(mine.get(), SHUT_RDWR) == 0);
    CHECK(receiveSome(mine.get(), bytes).io == Io::closed);
  });
}

TEST_CASE("a played kernel refuses who dials a host that was killed, and a descriptor where there is none") {
  TwoHosts two(TwoHosts::near(0));
  two.run([&] {
    two.tcp.refuseDescriptors(0, two.scheduler.now() + 1ms);
    CHECK(startConnecting(localAddress(two.listener.get())).error().errnum() == EMFILE);
    two.scheduler.sleep(2ms);
    two.tcp.kill(1);
    const Fd mine = two.dial();
    two.scheduler.sleep(100us);
    CHECK(connectError(mine.get()) == ECONNREFUSED);
  });
}

TEST_CASE("the task that is due first runs next, and time jumps to it") {
  Journal journal;
  Scheduler scheduler(1, journal);
  std::string order;
  const TimePoint began = scheduler.now();
  for (const char name : {'a', 'b', 'c'})
    scheduler.start(std::string(1, name), 0, [&, name] {
      scheduler.sleepUntil(began + std::chrono::hours('d' - name));
      order += name;
    });
  REQUIRE(scheduler.run([&] { return order.size() == 3; }, began + 5h, 100));
  CHECK(order == "cba");
  CHECK(scheduler.now() == began + 3h);
}

TEST_CASE("a rank that is held takes no step before its time") {
  Journal journal;
  Scheduler scheduler(1, journal);
  const TimePoint began = scheduler.now();
  bool done = false;
  scheduler.start("held", 3, [&] { done = true; });
  scheduler.hold(3, began + 2s);
  REQUIRE(scheduler.run([&] { return done; }, began + 5s, 100));
  CHECK(scheduler.now() == began + 2s);
}

TEST_CASE("mail keeps its order, and a cut holds it up but loses none") {
  TwoHubs two;
  two.run([&] {
    for (uint16_t type = 20; type < 30; type++) two.other->send(type, {});
    two.net.cut(0, 1, two.scheduler.now() + 1s);
    for (uint16_t type = 30; type < 40; type++) two.other->send(type, {});
    two.scheduler.sleep(900ms);
    CHECK(two.told[1]->types.size() == 10);
    two.scheduler.sleep(300ms);
    CHECK(two.told[1]->types.size() == 20);
    CHECK(std::is_sorted(two.told[1]->types.begin(), two.told[1]->types.end()));
    CHECK(two.told[0]->dead.empty());
  });
}

TEST_CASE("a killed process is noticed within a second, a stopped one after WEFT_PEER_TIMEOUT") {
  for (const bool kill : {true, false}) {
    TwoHubs two;
    two.run([&] {
      if (kill) two.net.kill(1);
      if (!kill) two.net.stop(1, two.scheduler.now() + 6s);
      two.scheduler.sleep(1s);
      CHECK(two.other->alive() != kill);
      CHECK(!two.other->answers());
      two.scheduler.sleep(5500ms);
      CHECK(!two.other->alive());
      CHECK(two.told[0]->dead.size() == 1);
    });
  }
}

TEST_CASE("a hub that closes says so to its peers") {
  TwoHubs two;
  two.run([&] {
    two.hubs[1].reset();
    two.scheduler.sleep(10ms);
    REQUIRE(two.told[0]->dead.size() == 1);
    CHECK(two.told[0]->dead[0].find("rank1") != std::string::npos);
  });
}

TEST_CASE("a seed is a run, and another seed another one") {
  PlanOptions options;
  options.seed = 3;
  const Outcome first = runWorld(options);
  CHECK(first.complaint.empty());
  CHECK(runWorld(options).hash == first.hash);
  options.seed = 4;
  CHECK(runWorld(options).hash != first.hash);
}

TEST_CASE("a world says what does not hold") {
  PlanOptions options;
  options.hurts = false;
  WorldPlan plan = drawPlan(options);
  plan.config.connectTimeout = Milliseconds(1);
  plan.latency = 50ms;
  const Outcome outcome = runPlan(plan, false);
  CHECK(outcome.complaint.find("nothing was done") != std::string::npos);
}
