// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/verbs/transport.h"
#include "src/base/fd.h"
#include "src/base/log.h"
#include "src/base/random.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"
#include "tests/support/patience.h"

// Two cables between two network namespaces, of which one is pulled in the middle of messages, again and
// again: every byte arrives, over a clean network and over one that loses packets. For the guest of
// scripts/rdma-vm --rails 2. Both ends are in this process, each with the devices of its own namespace.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

constexpr int kRails = 2;

void silent(LogLevel, const char*, int, const char*) {}  // each rail that is left is reported

// This thread in the namespace of the cables' far ends, while it lives.
class FarSide {
 public:
  FarSide() : home_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    const Fd far(::open("/run/netns/far", O_RDONLY | O_CLOEXEC));
    REQUIRE(::setns(far.get(), CLONE_NEWNET) == 0);
  }
  ~FarSide() { (void)::setns(home_.get(), CLONE_NEWNET); }

 private:
  Fd home_;
};

// The devices of the far side. What is opened there stays usable from here.
class FarTransport : public Transport {
 public:
  explicit FarTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  std::string version() const override { return inner_->version(); }
  std::vector<Refusal> refusals() const override { return inner_->refusals(); }
  Result<std::vector<DeviceInfo>> discover() override {
    const FarSide far;
    return inner_->discover();
  }
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override {
    const FarSide far;
    return inner_->open(info);
  }

 private:
  std::unique_ptr<Transport> inner_;
};

void setFarEnd(int rail, bool up) {
  const FarSide far;
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "far%d", rail);
  REQUIRE(::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0);
  request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  REQUIRE(::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0);
}

// Packets of every cable get lost in both directions, one in a hundred.
struct Loss {
  explicit Loss(bool wanted) : wanted_(wanted) {
    for (int rail = 0; wanted && rail < kRails; rail++) {
      run(format("tc qdisc add dev rail%d root netem loss 1%%", rail));
      run(format("tc -n far qdisc add dev far%d root netem loss 1%%", rail));
    }
  }
  ~Loss() {
    for (int rail = 0; wanted_ && rail < kRails; rail++) {
      (void)!std::system(format("tc qdisc del dev rail%d root", rail).c_str());
      (void)!std::system(format("tc -n far qdisc del dev far%d root", rail).c_str());
    }
  }
  void checkSomeWasLost() const {
    for (int rail = 0; wanted_ && rail < kRails; rail++)
      run(format("tc -s qdisc show dev rail%d | grep -q 'dropped [1-9]'", rail));
  }

 private:
  static void run(const std::string& command) { REQUIRE(std::system(command.c_str()) == 0); }
  bool wanted_;
};

WorldOptions overCables() {
  WorldOptions options;
  Config& config = options.config;
  config.ibTimeout = 14;  // 67 ms
  config.closeTimeout = Milliseconds(4000);
  config.laneTimeout = Milliseconds(200'000);
  config.railTimeout = Milliseconds(20'000);
  config.railRetry = Milliseconds(50);
  for (int side = 0; side < 2; side++) {
    config.hca = side == 0 ? "rxe" : "far";
    auto cards = verbs::makeTransport(config);
    if (!cards) FAIL(cards.error().message());
    options.rails[side] = kRails;
    if (side == 0)
      options.transports[side] = cards.take();
    else
      options.transports[side] = std::make_shared<FarTransport>(cards.take());
  }
  return options;
}

// Messages from side 0 to side 1, several in flight, each striped over both cables.
class Stream {
 public:
  explicit Stream(uint64_t seed)
      : random_(seed),
        world_(overCables()),
        link_(world_.connect(0)),
        out_(*link_.send, kBytes * kInFlight),
        in_(*link_.recv, kBytes * kInFlight) {}

  // Pulls cables until so many pulls hit data that had to be written again.
  void pull(size_t wanted) {
    size_t counted = 0, tried = 0;
    for (; counted < wanted && tried < wanted * 4; tried++) counted += pullOne();
    std::printf(
        "%zu pulls of %zu counted; again: %llu segments, %llu bytes, %llu lines; rails revived %llu times\n",
        counted, tried, total(&EngineCounters::segmentsAgain), total(&EngineCounters::bytesAgain),
        total(&EngineCounters::ctsAgain), total(&EngineCounters::lanesRevived));
    CHECK(counted == wanted);
    CHECK(total(&EngineCounters::foreignNotes) == 0);
    CHECK(world_.messages.empty());
  }

 private:
  static constexpr size_t kBytes = 512 << 10;
  static constexpr size_t kInFlight = 4;

  struct Message {
    Request* sending = nullptr;
    Request* receiving = nullptr;
    uint64_t id = 0;
  };

  unsigned long long total(uint64_t EngineCounters::*what) {
    return world_.side(0).engine->counters().*what + world_.side(1).engine->counters().*what;
  }
  size_t lanesUp() { return std::min(link_.send->peering().lanesUp(), link_.recv->peering().lanesUp()); }

  void turn() {
    const auto now = std::chrono::steady_clock::now();
    world_.clock().advance(now - last_);
    last_ = now;
    world_.deliverMessages();
    world_.progress(0);
    world_.progress(1);
    if (turns_++ % 16 == 0) world_.watch(0), world_.watch(1);
  }

  template <class Done>
  void turnUntil(const char* what, Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
    while (!done()) {
      INFO(what);
      REQUIRE(std::chrono::steady_clock::now() < end);
      turn();
    }
  }

  bool pullOne() {
    const auto rail = static_cast<int>(random_.below(kRails));
    Lane& lane = link_.send->peering().lane(static_cast<size_t>(rail));
    const uint64_t again = total(&EngineCounters::segmentsAgain);
    for (size_t i = 0; i < kInFlight; i++) post(i);
    turnUntil("data on both cables", [&] { return lane.outstandingBytes() > 0 || allDone(); });
    for (uint64_t more = random_.below(8); more > 0; more--) turn();
    const bool hit = lane.outstandingBytes() > 0;
    setFarEnd(rail, false);
    turnUntil("the messages", [&] { return allDone(); });
    turnUntil("the rail to be left", [&] { return lanesUp() < kRails; });
    setFarEnd(rail, true);
    turnUntil("the rail to come back", [&] { return lanesUp() == kRails; });
    return hit && total(&EngineCounters::segmentsAgain) > again;
  }

  void post(size_t i) {
    Message& message = messages_[i];
    message.id = ++sent_;
    fillPattern(out_.data() + i * kBytes, kBytes, message.id);
    std::memset(in_.data() + i * kBytes, 0, kBytes);
    const ReceiveSpec spec{in_.data() + i * kBytes, kBytes, static_cast<int>(i), in_.handle(), nullptr};
    turnUntil("a receive to be taken", [&] {
      const Posted posted = link_.recv->irecv(std::span(&spec, 1));
      if (!posted.ok) FAIL(link_.recv->stickyError().message());
      return (message.receiving = posted.request) != nullptr;
    });
    turnUntil("a send to be taken", [&] {
      const Posted posted =
          link_.send->isend(out_.data() + i * kBytes, kBytes, static_cast<int>(i), out_.handle(), nullptr);
      if (!posted.ok) FAIL(link_.send->stickyError().message());
      return (message.sending = posted.request) != nullptr;
    });
  }

  // A buffer that was handed back is filled with something else at once: nothing may read or write it.
  bool allDone() {
    bool all = true;
    for (size_t i = 0; i < kInFlight; i++) {
      Message& message = messages_[i];
      if (isDone(*link_.send, &message.sending)) std::memset(out_.data() + i * kBytes, 0xee, kBytes);
      if (isDone(*link_.recv, &message.receiving))
        REQUIRE(firstMismatch(in_.data() + i * kBytes, kBytes, message.id) == kBytes);
      all = all && !message.sending && !message.receiving;
    }
    if (all)
      for (size_t i = 0; i < kInFlight; i++)
        REQUIRE(firstMismatch(in_.data() + i * kBytes, kBytes, messages_[i].id) == kBytes);
    return all;
  }

  // Just now, that is.
  static bool isDone(CommBase& comm, Request** request) {
    if (!*request) return false;
    const Tested tested = comm.testRequest(*request, nullptr);
    if (!tested.ok) FAIL(comm.stickyError().message());
    if (tested.done) *request = nullptr;
    return tested.done;
  }

  SeededRandom random_;
  World world_;
  Connection link_;
  Buffer out_, in_;
  Message messages_[kInFlight];
  uint64_t sent_ = 0;
  size_t turns_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

size_t pulls() {
  const char* full = environmentValue("WEFT_TEST_FULL");
  return full && std::string(full) == "1" ? 100 : 10;
}

}  // namespace

TEST_CASE("a cable is pulled in the middle of messages") {
  const bool lossy = GENERATE(false, true);
  const uint64_t seed = 20'261'124;
  INFO("seed " << seed << (lossy ? ", with 1 % loss" : ""));
  setLogSink(silent);
  {
    const Loss loss(lossy);
    Stream(seed).pull(pulls());
    loss.checkSomeWasLost();
  }
  setLogSink(nullptr);
}
