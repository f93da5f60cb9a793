// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "src/base/config.h"
#include "tests/hostile/links_call.h"
#include "tests/hostile/links_middle.h"
#include "tests/support/patience.h"
#include "tests/unit/control_support.h"

// Control links between two hosts whose only cables lead to the man in the middle: towards each of them he
// has the other one's address. The hosts are network namespaces inside namespaces of the test's own
// (tests/unit/in_own_network).
using namespace weft;
using namespace weft::control;
using namespace weft::hostile;

namespace {

constexpr const char* kCable = "wire";

bool run(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

// A network namespace with one end of a cable.
class Space {
 public:
  Space(const std::string& name, const std::string& address)
      : name_(name + std::to_string(getpid())), address_(address) {
    REQUIRE(run("ip netns add " + name_));
    REQUIRE(run("ip -n " + name_ + " link set lo up"));
    there_.reset(::open(("/run/netns/" + name_).c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(there_);
  }
  ~Space() { run("ip netns del " + name_); }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  void plugIn() const {
    REQUIRE(run("ip -n " + name_ + " addr add " + address_ + "/24 dev " + kCable));
    REQUIRE(run("ip -n " + name_ + " link set " + kCable + " up"));
  }
  bool isPlugged() const { return run("ip -n " + name_ + " link show " + kCable + " | grep -q 'state UP'"); }

  // On this thread. Threads that `work` starts stay there.
  template <class Work>
  auto inside(Work work) const {
    const Fd here(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!here || ::setns(there_.get(), CLONE_NEWNET) != 0) std::abort();
    auto made = work();
    if (::setns(here.get(), CLONE_NEWNET) != 0) std::abort();
    return made;
  }

 private:
  const std::string name_, address_;
  Fd there_;
};

void layCable(const Space& one, const Space& other) {
  REQUIRE(run("ip link add " + std::string(kCable) + " netns " + one.name() + " type veth peer name " +
              kCable + " netns " + other.name()));
  for (const Space* end : {&one, &other}) end->plugIn();
  for (const Space* end : {&one, &other}) REQUIRE(eventually([&] { return end->isPlugged(); }));
}

Config via(uint16_t first, uint16_t last) {
  Config config;
  config.socketIfname = std::string("=") + kCable;
  config.connectTimeout = config.acceptTimeout = kConnect;
  config.portRange = std::to_string(first) + "-" + std::to_string(last);
  return config;
}

struct Hosted {
  std::shared_ptr<Recorder> heard = std::make_shared<Recorder>();
  std::shared_ptr<Hub> hub;
};

Hosted hubOn(const Space& space, const Config& config) {
  Hosted made;
  HubOptions options;
  options.config = config;
  options.fingerprint = {{"plugin", "test", true}};
  options.handler = made.heard;
  auto hub = space.inside([&] { return Hub::create(std::move(options)); });
  REQUIRE(hub);
  made.hub = hub.take();
  return made;
}

sockaddr_in placeOf(const std::string& address, uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  REQUIRE(::inet_pton(AF_INET, address.c_str(), &out.sin_addr) == 1);
  return out;
}

// Two hosts and what is between them.
class Hosts {
 public:
  static constexpr uint16_t kFirst = 29610, kLast = 29613;  // of each host's ports

  Hosts() {
    layCable(a_, towardsA_);
    layCable(b_, towardsB_);
  }
  // They outlive him.
  void put(Middle& middle) const {
    for (uint16_t port = kFirst; port <= kLast; port++) {
      stand(middle, port, towardsA_, towardsB_);
      stand(middle, port, towardsB_, towardsA_);
    }
  }
  const Space& a() const { return a_; }
  const Space& b() const { return b_; }

 private:
  // In `here` he has the address of the host that is reached from `there`.
  static void stand(Middle& middle, uint16_t port, const Space& here, const Space& there) {
    const sockaddr_in at = placeOf(here.address(), port);
    Fd listener = here.inside([&] {
      Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) fd.reset();
      return fd;
    });
    REQUIRE(listener);
    REQUIRE(::listen(listener.get(), 128) == 0);
    middle.stand(std::move(listener), [&there, at] {
      return there.inside([&] {
        Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) fd.reset();
        return fd;
      });
    });
  }

  Space a_{"wa", "198.51.100.1"}, towardsA_{"wma", "198.51.100.2"};
  Space b_{"wb", "198.51.100.2"}, towardsB_{"wmb", "198.51.100.1"};
};

// A call from a to b. Returns what went wrong; empty: it ended as it may.
std::string attack(const Hosts& hosts, Hub& b, Listener& listener) {
  const Hosted a = hubOn(hosts.a(), via(Hosts::kFirst, Hosts::kLast));
  return callThrough(*a.hub, b, listener);
}

}  // namespace

TEST_CASE("between two hosts a man in the middle of a handshake gains nothing") {
  const Hosts hosts;
  Middle middle;
  hosts.put(middle);
  const Hosted b = hubOn(hosts.b(), via(Hosts::kFirst, Hosts::kLast));
  auto listener = b.hub->listen();
  REQUIRE(listener);
  const size_t seeds = environmentValue("WEFT_TEST_FULL") ? 3000 : 300;
  size_t played = 0, holds = 0;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    Plan plan = planOf(seed, kPlaces);
    if (plan.trick == Trick::hold && ++holds % 10 != 0) plan.trick = Trick::flip;  // a hold takes its time
    middle.follow(plan);
    const std::string wrong = attack(hosts, *b.hub, **listener);
    INFO("seed " << seed << ": " << nameOf(plan.trick)
                 << (plan.toAcceptor ? " to the acceptor at " : " to the dialler at ") << plan.at
                 << (plan.always ? ", always" : ", once"));
    CHECK(wrong == "");
    played += middle.played() ? 1 : 0;
  }
  CHECK(played > seeds / 4);  // others wait for bytes that were never sent
  WARN("tricks that were reached: " << played << " of " << seeds);
}

TEST_CASE("between two hosts calls go through the middle, and their words are not to be read there") {
  const Hosts hosts;
  Middle middle;
  hosts.put(middle);
  const Hosted a = hubOn(hosts.a(), via(Hosts::kFirst, Hosts::kLast));
  const Hosted b = hubOn(hosts.b(), via(Hosts::kFirst, Hosts::kLast));
  auto listener = b.hub->listen();
  REQUIRE(listener);
  middle.follow({});
  connect(*a.hub, *b.hub, **listener);
  CHECK(middle.connections() == 1);
  const std::string up = textOf(middle.heard(true)), down = textOf(middle.heard(false));
  CHECK_FALSE(up.empty());
  CHECK_FALSE(down.empty());
  for (const std::string& said : {up, down})
    for (const char* word : {"hello", "welcome", "plugin"}) CHECK(said.find(word) == std::string::npos);
}
