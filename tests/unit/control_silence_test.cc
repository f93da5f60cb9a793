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

// With the bound of a silent host in milliseconds; 0: the default.
Config via(const std::string& interface, int bound) {
  Config config;
  config.socketIfname = "=" + interface;
  if (bound > 0) config.kernelTimeout = Milliseconds(bound);
  return config;
}

bool full() {
  const char* wanted = environmentValue("WEFT_TEST_FULL");
  return wanted && *wanted;
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
  PeerRef connectTo(const Handle& handle) const {
    auto call = hub->call(handle, {});
    REQUIRE(decided(*call));
    REQUIRE(call->state() == Call::State::replied);
    return call->peer();
  }
  // A message to the peer came back.
  bool answered(Peer& peer) const {
    const size_t before = heard->count();
    peer.send(16, bytesOf("are you there"));
    return eventually([&] { return heard->count() > before; });
  }

  std::shared_ptr<Recorder> heard = std::make_shared<Recorder>();
  std::shared_ptr<Hub> hub;
};

}  // namespace

TEST_CASE("a host that falls silent is dead after the kernel's bound, a short silence is survived") {
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf", "3000"}));
  NearSide a(via(host.near(), 3000));
  const PeerRef peer = a.connectTo(child.readHandle());
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

TEST_CASE(
    "silence shorter than the default bound is reported once, survived, and not taken for the process's") {
  const int seconds = full() ? GENERATE(2, 4, 10, 20) : GENERATE(4);
  const bool bothWays = full() ? GENERATE(true, false) : true;
  CAPTURE(seconds, bothWays);
  const WarningCatcher log;
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf"}));
  NearSide a(via(host.near(), 0));
  const PeerRef peer = a.connectTo(child.readHandle());
  const auto start = Clk::now();
  host.goSilent(bothWays);
  for (int i = 0; i < 50; i++) peer->send(16, bytesOf(std::to_string(i)));
  REQUIRE(eventually([&] { return Clk::now() - start > std::chrono::seconds(seconds) || !peer->alive(); },
                     milliseconds(60'000)));
  CHECK(peer->alive());
  host.comeBack();
  CHECK(eventually([&] { return a.heard->count() == 50; }));
  CHECK(peer->alive());
  CHECK(eventually([&] { return peer->answers(); }));
  const auto said = log.warnings();
  REQUIRE(said.size() == (seconds > 3 ? 1 : 0));
  if (seconds < 4) return;
  CHECK(said[0].find("the host of " + peer->name()) != std::string::npos);
  CHECK(said[0].find("the fabric is silent as well") != std::string::npos);
}

TEST_CASE("a host that is silent for good is dead after the default bound") {
  if (!full()) return;
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf"}));
  NearSide a(via(host.near(), 0));
  const PeerRef peer = a.connectTo(child.readHandle());
  const auto start = Clk::now();
  host.goSilent(true);
  REQUIRE(eventually([&] { return !peer->alive(); }, milliseconds(60'000)));
  CHECK(Clk::now() - start > milliseconds(28'900));
  CHECK(Clk::now() - start < milliseconds(32'000));
}

// As over EFA, whose cards are not the ones that control links go by.
TEST_CASE("a host that is silent on the control network lives for as long as its fabric does") {
  const WarningCatcher log;
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf", "60000"}));
  Config config = via(host.near(), 1000);
  config.peerSilentWarn = Milliseconds(1500);  // of the process, which nobody can hear
  config.peerTimeout = Milliseconds(2000);
  NearSide a(config);
  const PeerRef peer = a.connectTo(child.readHandle());
  const auto start = Clk::now();
  host.goSilent(true);
  REQUIRE(eventually([&] {
    peer->seenOnFabric(Clk::now());
    return Clk::now() - start > milliseconds(4000) || !peer->alive();
  }));
  CHECK(peer->alive());
  REQUIRE(log.warnings().size() == 1);
  CHECK(log.warnings()[0].find("the fabric works") != std::string::npos);
  const auto last = Clk::now();
  REQUIRE(eventually([&] { return !peer->alive(); }));
  CHECK(Clk::now() - last > milliseconds(900));
  CHECK(Clk::now() - last < milliseconds(1800));
  CHECK(peer->reason().message().find("the fabric is silent as well") != std::string::npos);
}

// Its kernel never sends what it drops, so nothing is ever unacknowledged in the usual sense.
TEST_CASE("a peer is not called alive by a host that drops its own packets to it") {
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf", "60000"}));
  NearSide a(via(host.near(), 1000));
  const PeerRef peer = a.connectTo(child.readHandle());
  const bool firewall = GENERATE(false, true);
  if (firewall && !run("iptables -L")) return;
  CAPTURE(firewall);
  std::this_thread::sleep_for(milliseconds(500));  // nothing is under way any more
  const auto start = Clk::now();
  if (firewall) {
    REQUIRE(run("iptables -A OUTPUT -d 198.51.100.2 -j DROP"));
  } else {
    REQUIRE(run("ip route add blackhole 198.51.100.2"));
  }
  const bool dead = eventually([&] { return !peer->alive(); });
  const auto took = Clk::now() - start;
  run(firewall ? "iptables -F OUTPUT" : "ip route del blackhole 198.51.100.2");
  REQUIRE(dead);
  CHECK(took > milliseconds(600));
  CHECK(took < milliseconds(2500));
  CHECK(peer->reason().message().find("acknowledged nothing") != std::string::npos);
}

TEST_CASE("after an outage a peer is blamed for no silence before three times as much time has passed") {
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf"}));
  NearSide a(via(host.near(), 0));
  const PeerRef peer = a.connectTo(child.readHandle());
  CHECK(peer->settled());
  const auto start = Clk::now();
  host.goSilent(true);
  REQUIRE(eventually([&] { return Clk::now() - start > milliseconds(2500); }));
  CHECK_FALSE(peer->settled());
  host.comeBack();
  REQUIRE(eventually([&] { return peer->answers() && a.answered(*peer); }));
  const auto back = Clk::now();
  CHECK_FALSE(peer->settled());
  REQUIRE(eventually([&] { return peer->settled(); }, milliseconds(30'000)));
  CHECK(Clk::now() - back > 2 * (back - start));
  CHECK(Clk::now() - back < 4 * (back - start));
}

// The link is lost after half of the kernel's bound; the other half passes while nobody here could hear.
TEST_CASE("time in which this process stood still says nothing about a peer") {
  const FarHost host;
  REQUIRE(host.up());
  ChildProcess child(host.inside({CONTROL_PEER, "wf", "3000"}));
  StandingStill clock;
  NearSide a(via(host.near(), 3000), clock);
  const PeerRef peer = a.connectTo(child.readHandle());
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
  Config config = via(host.near(), 0);
  config.connectTimeout = Milliseconds(700);
  NearSide a(config);
  const Handle handle = child.readHandle();
  host.goSilent(true);
  auto call = a.hub->call(handle, {});
  REQUIRE(decided(*call));
  CHECK(call->state() == Call::State::failed);
  CHECK(call->error().code() == Code::timeout);
}
