// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/unit/control_process.h"
#include "tests/unit/control_sockets.h"
#include "tests/unit/control_support.h"

using namespace weft;
using namespace weft::control;
using Clk = std::chrono::steady_clock;

// A host that falls silent, as a network namespace whose only cable is pulled. Runs inside namespaces of its
// own (tests/unit/in_own_network).
namespace {

bool run(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

class FarHost {
 public:
  FarHost() {
    const std::string id = std::to_string(getpid());
    space_ = "weft" + id;
    near_ = "wn" + id;
    far_ = "wf" + id;
    up_ = run("ip netns add " + space_) && run("ip link add " + near_ + " type veth peer name " + far_) &&
          run("ip link set " + far_ + " netns " + space_) &&
          run("ip addr add 198.51.100.1/24 dev " + near_) && run("ip link set " + near_ + " up") &&
          run("ip -n " + space_ + " addr add 198.51.100.2/24 dev " + far_) &&
          run("ip -n " + space_ + " link set " + far_ + " up") &&
          run("ip -n " + space_ + " link set lo up") && comesUp("ip link show " + near_) &&
          comesUp("ip -n " + space_ + " link show " + far_);
  }
  ~FarHost() {
    run("ip link del " + near_);
    run("ip netns del " + space_);
  }
  bool up() const { return up_; }
  const std::string& near() const { return near_; }
  std::vector<std::string> inside(std::vector<std::string> command) const {
    command.insert(command.begin(), {"ip", "netns", "exec", space_});
    return command;
  }
  // Packets vanish without any local error: a neighbour that does not exist is told apart by nobody.
  void goSilent(bool bothWays) const {
    REQUIRE(run("ip neigh replace 198.51.100.2 lladdr 02:00:00:00:00:01 nud permanent dev " + near_));
    if (!bothWays) return;
    REQUIRE(run("ip -n " + space_ +
                " neigh replace 198.51.100.1 lladdr 02:00:00:00:00:01 nud permanent dev " + far_));
  }
  // As when a cable is pulled: there is no way to it any more.
  void unplug() const { REQUIRE(run("ip link set " + near_ + " down")); }
  void plugIn() const { REQUIRE(run("ip link set " + near_ + " up")); }
  void comeBack() const {
    run("ip neigh del 198.51.100.2 dev " + near_);
    run("ip -n " + space_ + " neigh del 198.51.100.1 dev " + far_);
  }

 private:
  // The kernel notices that there is somebody at the other end when it has time to, at each end by itself.
  static bool comesUp(const std::string& show) {
    for (int ms = 0; ms < 5000; ms += 10) {
      if (run(show + " | grep -q 'state UP'")) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  std::string space_, near_, far_;
  bool up_ = false;
};

Config via(const std::string& interface) {
  Config config;
  config.socketIfname = "=" + interface;
  return config;
}

// What a process sees that stands still for a while: all at once it is later.
class StandingStill : public Clock {
 public:
  TimePoint now() const override { return Clock::now() + Nanoseconds(missed_.load()); }
  void standStill(Nanoseconds time) { missed_ += time.count(); }

 private:
  std::atomic<int64_t> missed_{0};
};

struct NearSide {
  explicit NearSide(const Config& config, const Clock& clock = Clock::system()) {
    HubOptions options;
    options.config = config;
    options.clock = &clock;
    options.fingerprint = {{"plugin", "test", true}};
    options.handler = heard;
    auto made = Hub::create(std::move(options));
    REQUIRE(made);
    hub = made.take();
  }
  std::shared_ptr<Recorder> heard = std::make_shared<Recorder>();
  std::shared_ptr<Hub> hub;
};

}  // namespace

TEST_CASE("a host that falls silent is dead after the kernel's bound, a short silence is survived") {
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf"}));
  NearSide a(via(host.near()));
  auto call = a.hub->call(child.readHandle(), {});
  REQUIRE(decided(*call));
  REQUIRE(call->state() == Call::State::replied);
  const PeerRef peer = call->peer();
  const bool bothWays = GENERATE(true, false);
  CAPTURE(bothWays);
  SECTION("for good") {
    const auto start = Clk::now();
    host.goSilent(bothWays);
    REQUIRE(eventually([&] { return !peer->alive(); }));
    const auto took = Clk::now() - start;
    CHECK(took < milliseconds(bothWays ? 3600 : 4600));
    CHECK(took > milliseconds(1900));
    CHECK(peer->reason().message().find("acknowledged nothing") != std::string::npos);
  }
  SECTION("for a second") {
    const auto start = Clk::now();
    host.goSilent(bothWays);
    for (int i = 0; i < 50; i++) peer->send(16, bytesOf(std::to_string(i)));
    REQUIRE(eventually([&] { return Clk::now() - start > milliseconds(1000); }));
    CHECK(peer->alive());
    host.comeBack();
    CHECK(eventually([&] { return a.heard->count() == 50; }));
    CHECK(peer->alive());
  }
}

// The link is lost after half of the kernel's bound; the other half passes while nobody here could hear.
TEST_CASE("time in which this process stood still says nothing about a peer") {
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf"}));
  StandingStill clock;
  NearSide a(via(host.near()), clock);
  auto call = a.hub->call(child.readHandle(), {});
  REQUIRE(decided(*call));
  REQUIRE(call->state() == Call::State::replied);
  const PeerRef peer = call->peer();
  const auto start = Clk::now();
  host.goSilent(true);
  peer->send(16, bytesOf("later"));
  REQUIRE(eventually([&] { return Clk::now() - start > milliseconds(1800); }));
  clock.standStill(milliseconds(1800));
  host.comeBack();
  CHECK(eventually([&] { return a.heard->count() == 1 || !peer->alive(); }));
  CHECK(peer->alive());
}

// Both hosts tell each other their loopback addresses, as they do those of equal bridges.
TEST_CASE("that nobody is at an address of this host says nothing about a peer on another") {
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "lo,wf", "20000"}));
  Config config;
  config.socketIfname = "lo," + host.near();
  config.kernelTimeout = Milliseconds(20000);  // a kernel may take a while to see a cable again
  NearSide a(config);
  const Handle handle = child.readHandle();
  auto call = a.hub->call(handle, {});
  REQUIRE(decided(*call));
  REQUIRE(call->state() == Call::State::replied);
  const PeerRef peer = call->peer();
  host.unplug();
  REQUIRE(cutLinks(handle.addresses.front().port()) > 0);
  std::this_thread::sleep_for(milliseconds(300));
  CHECK(peer->alive());
  host.plugIn();
  peer->send(16, bytesOf("later"));
  CHECK(eventually([&] { return a.heard->count() == 1 || !peer->alive(); }));
  CHECK(peer->alive());
}

TEST_CASE("a call to a silent host fails at its deadline") {
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf"}));
  Config config = via(host.near());
  config.connectTimeout = Milliseconds(700);
  NearSide a(config);
  const Handle handle = child.readHandle();
  host.goSilent(true);
  auto call = a.hub->call(handle, {});
  REQUIRE(decided(*call));
  CHECK(call->state() == Call::State::failed);
  CHECK(call->error().code() == Code::timeout);
}
