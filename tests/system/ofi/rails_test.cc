// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "providers/fault/transport.h"
#include "providers/ofi/transport.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "tests/protocol/rail_storm.h"
#include "tests/support/sanitizer.h"

// Two rails over real sockets, which die at random: bytes, and how long traffic stands still. Both ends are
// in this process; each rail has queues, connections and memory keys of its own, over the one interface that
// every machine has.
using namespace weft;
using namespace weft::core;
using namespace weft::test;
using fault::FaultKind;

namespace {

constexpr int kRails = 2;

// One device of another transport as several.
class Split : public Transport {
 public:
  explicit Split(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  std::string version() const override { return inner_->version(); }
  Result<std::vector<DeviceInfo>> discover() override {
    TRY(const auto found, inner_->discover());
    if (found.empty()) return found;
    device_ = found.front();
    std::vector<DeviceInfo> rails(kRails, device_);
    for (int i = 0; i < kRails; i++) rails[static_cast<size_t>(i)].name += "-" + std::to_string(i);
    return rails;
  }
  std::vector<Refusal> refusals() const override { return inner_->refusals(); }
  Result<std::shared_ptr<Device>> open(const DeviceInfo&) override { return inner_->open(device_); }

 private:
  std::unique_ptr<Transport> inner_;
  DeviceInfo device_;
};

constexpr Milliseconds kRailTimeout{200};

void silent(LogLevel, const char*, int, const char*) {}  // each rail that is left is reported

// The world's clock follows the real one, as sockets do.
class RealTime {
 public:
  void operator()(World& world) {
    const auto now = std::chrono::steady_clock::now();
    world.clock().advance(now - last_);
    last_ = now;
    world.progress(0);
    world.progress(1);
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

StormOptions overSockets() {
  StormOptions storm;
  storm.name = "two rails over " WEFT_OWN_TCP;
  storm.tick = RealTime();
  Config& config = storm.world.config;
  config.socketIfname = "=lo";
  config.stripeMinBytes = 4096;
  config.closeTimeout = Milliseconds(2000);
  config.laneTimeout = Milliseconds(20'000);
  config.railTimeout = kRailTimeout;
  config.railRetry = Milliseconds(1);
  for (int i = 0; i < 2; i++) {
    auto sockets = ofi::makeTransport(WEFT_OWN_TCP, config);
    if (!sockets) FAIL(sockets.error().message());
    auto wrapped = fault::makeTransport(std::make_unique<Split>(sockets.take()));
    storm.controls[i] = wrapped->control();
    storm.world.rails[i] = kRails;
    storm.world.transports[i] = std::move(wrapped);
  }
  return storm;
}

size_t kills() {
  if (environmentValue("WEFT_TEST_FULL")) return 10'000;
  return kSanitized ? 12 : 500;
}

// One message after the other from side 0 to side 1, each striped over both rails; how long the longest took
// once a rail had been killed.
class Stream {
 public:
  Stream()
      : storm_(overSockets()),
        world_(storm_.world),
        link_(world_.connect(0)),
        out_(*link_.send, kBytes),
        in_(*link_.recv, kBytes) {}

  Nanoseconds longestAfter(FaultKind kind) {
    for (int i = 0; i < 20; i++) (void)one();
    fault::FaultRule rule;
    rule.kind = kind;
    rule.op = fault::FaultOp::writeNotify;
    rule.rail = 1;
    const auto state = storm_.controls[0]->add(rule);
    const uint64_t again = counters().segmentsAgain;
    Nanoseconds longest{0};
    for (int i = 0; i < 20; i++) longest = std::max(longest, one());
    REQUIRE(state->counts().hits == 1);
    REQUIRE(counters().segmentsAgain == again + 1);
    storm_.controls[0]->clear();
    for (const auto from = std::chrono::steady_clock::now(); lanesUp() < kRails;) {
      REQUIRE(std::chrono::steady_clock::now() - from < std::chrono::seconds(20));
      turn();
    }
    return longest;
  }

 private:
  static constexpr size_t kBytes = 256 << 10;

  const EngineCounters& counters() { return world_.side(0).engine->counters(); }
  size_t lanesUp() { return std::min(link_.send->peering().lanesUp(), link_.recv->peering().lanesUp()); }

  void turn() {
    world_.deliverMessages();
    storm_.tick(world_);
    if (turns_++ % 16 == 0) world_.watch(0), world_.watch(1);
  }

  Nanoseconds one() {
    const auto from = std::chrono::steady_clock::now();
    fillPattern(out_.data(), kBytes, ++sent_);
    const ReceiveSpec spec{in_.data(), kBytes, 1, in_.handle(), nullptr};
    const Posted receiving = link_.recv->irecv(std::span(&spec, 1), false);
    REQUIRE(receiving.request);
    Posted sending;
    for (; !sending.request; turn()) {
      sending = link_.send->isend(out_.data(), kBytes, 1, out_.handle(), nullptr);
      REQUIRE(sending.ok);
    }
    finish(*link_.recv, receiving.request);
    finish(*link_.send, sending.request);
    const auto took = std::chrono::steady_clock::now() - from;
    REQUIRE(firstMismatch(in_.data(), kBytes, sent_) == kBytes);
    return took;
  }

  void finish(CommBase& comm, Request* request) {
    const auto from = std::chrono::steady_clock::now();
    for (Tested tested; !tested.done; turn()) {
      tested = comm.testRequest(request, nullptr);
      if (!tested.ok) FAIL(comm.stickyError().message());
      REQUIRE(std::chrono::steady_clock::now() - from < std::chrono::seconds(60));
    }
  }

  StormOptions storm_;
  World world_;
  Connection link_;
  Buffer out_, in_;
  uint64_t sent_ = 0;
  size_t turns_ = 0;
};

}  // namespace

TEST_CASE("nothing is lost while rails over sockets die and come back") {
  setLogSink(silent);
  const uint64_t seed = 20'261'123;
  INFO("seed " << seed);
  StormOptions storm = overSockets();
  storm.world.config.railTimeout = Milliseconds(50);  // every fourth kill is noticed by nothing else
  const size_t wanted = kills();
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(wanted > 1000 ? 3'600'000 : 60'000);
  storm.expired = [end] { return std::chrono::steady_clock::now() > end; };
  storm.least = wanted / 10;  // a machine that is busy with something else
  Storm(std::move(storm), seed).run(wanted);
  setLogSink(nullptr);
}

// The documented bound is 1.25 times WEFT_RAIL_TIMEOUT for a rail that says nothing, and none for one that
// fails. The best of a few, as this machine may be doing something else meanwhile.
TEST_CASE("traffic stands still no longer than it takes to notice, and a tenth of a second") {
  setLogSink(silent);
  const FaultKind kind = GENERATE(FaultKind::kill, FaultKind::killLate, FaultKind::killSilent);
  const Nanoseconds bound =
      kind == FaultKind::killSilent ? Nanoseconds(kRailTimeout) * 5 / 4 : Nanoseconds(0);
  Nanoseconds best = std::chrono::hours(1);
  Stream stream;
  for (int i = 0; i < 10 && best > bound + Milliseconds(100); i++)
    best = std::min(best, stream.longestAfter(kind));
  std::printf("%-12s stood still for %lld ms\n", fault::faultName(kind),
              static_cast<long long>(std::chrono::duration_cast<Milliseconds>(best).count()));
  CHECK(best <= bound + Milliseconds(100));
  setLogSink(nullptr);
}
