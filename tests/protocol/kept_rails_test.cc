// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "providers/local/transport.h"
#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Peerings that go through shared memory and carry GPU memory there: the rails' lanes stand by, and carry all
// that is open and all that is new when the lane through shared memory breaks.
using namespace weft;
using namespace weft::core;
using namespace weft::test;
using fault::FaultKind;
using fault::FaultOp;

namespace {

// Says of its device that it takes GPU memory. No message of these tests is in any.
class SaysGpu : public Device {
 public:
  explicit SaysGpu(std::shared_ptr<Device> inner) : inner_(std::move(inner)), info_(inner_->info()) {
    info_.cudaMemory = true;
  }
  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override {
    return inner_->registerMemory(desc);
  }
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override {
    return inner_->openQueue(wanted);
  }

 private:
  std::shared_ptr<Device> inner_;
  DeviceInfo info_;
};

class SaysGpuTransport : public Transport {
 public:
  std::string name() const override { return "local"; }
  std::string version() const override { return {}; }
  Result<std::vector<DeviceInfo>> discover() override { return inner_->discover(); }
  std::vector<Refusal> refusals() const override { return {}; }
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override {
    TRY(auto inner, inner_->open(info));
    return std::shared_ptr<Device>(std::make_shared<SaysGpu>(std::move(inner)));
  }
  fault::FaultControl& control() const { return *inner_->control(); }

 private:
  std::unique_ptr<fault::FaultTransport> inner_ = fault::makeTransport(local::makeTransport(configOfTests()));
};

void silent(LogLevel, const char*, int, const char*) {}

struct KeptRails {
  // `hurt`: what the rails suffer.
  explicit KeptRails(int rails, const fault::FaultRule* hurt = nullptr)
      : stats(std::make_shared<loop::LoopStats>()) {
    WorldOptions options;
    options.config.connectTimeout = Milliseconds(4'000);
    loop::LoopOptions fabric;
    fabric.rails = rails;
    fabric.stats = stats;
    for (int i = 0; i < 2; i++) {
      options.rails[i] = rails;
      options.transports[i] = transportOf(fabric, hurt);
      options.locals[i] = locals[i] = std::make_shared<SaysGpuTransport>();
    }
    world = std::make_unique<World>(std::move(options));
    // A close waits for the other end, which this thread is as well.
    world->clock().whileSleeping = [this] { world->pump(); };
    link = world->connect(0);
    setLogSink(silent);  // a rail that is left is reported; here it is planned
  }
  ~KeptRails() {
    world->clock().whileSleeping = nullptr;
    link = {};
    setLogSink(nullptr);
  }
  static std::shared_ptr<Transport> transportOf(const loop::LoopOptions& fabric,
                                                const fault::FaultRule* hurt) {
    if (!hurt) return loop::makeTransport(fabric);
    auto faulty = fault::makeTransport(loop::makeTransport(fabric));
    faulty->control()->add(*hurt);
    return faulty;
  }
  uint64_t bytesByRails() const {
    uint64_t bytes = 0;
    for (const loop::RailStats& rail : stats->rails) bytes += rail.bytes.load();
    return bytes;
  }
  void live(int milliseconds) const {
    for (int i = 0; i < milliseconds; i++) {
      world->clock().advance(Milliseconds(1));
      world->watch(0), world->watch(1);
      world->pump();
    }
  }
  void exchangeAll() {
    uint64_t number = 1;
    for (const size_t bytes : {1u, 8u, 4096u, 9000u, 300'000u, 1'000'000u})
      exchange(*world, link, bytes, number++, 20'000, [&] { live(1); });
  }
  Lane& shared(int side) { return side == 0 ? link.send->peering().lane(0) : link.recv->peering().lane(0); }

  std::shared_ptr<loop::LoopStats> stats;
  std::shared_ptr<SaysGpuTransport> locals[2];
  std::unique_ptr<World> world;
  Connection link;
};

}  // namespace

TEST_CASE("where GPU memory is shared, the rails stand by and carry nothing") {
  const int rails = GENERATE(1, 2);
  KeptRails kept(rails);
  kept.exchangeAll();
  const auto lanes = static_cast<size_t>(rails) + 1;
  for (const Peering* one : {&kept.link.send->peering(), &kept.link.recv->peering()}) {
    CHECK(one->laneCount() == lanes);
    CHECK(one->lanesUp() == lanes);
    CHECK(one->onlySharesMemory());
  }
  CHECK(kept.shared(0).railName() == "local");
  CHECK(kept.shared(1).railName() == "local");
  CHECK(kept.bytesByRails() == 0);
}

TEST_CASE("a message whose copy fails comes by the rails, and shared memory is used again later") {
  const int rails = GENERATE(1, 2);
  const int side = GENERATE(0, 1);
  const FaultKind kind = GENERATE(FaultKind::kill, FaultKind::killLate, FaultKind::error);
  CAPTURE(rails, side, static_cast<int>(kind));
  KeptRails kept(rails);
  kept.exchangeAll();
  fault::FaultRule rule;
  rule.kind = kind;
  rule.op = side == 0 ? FaultOp::writeNotify : FaultOp::write;  // the receiver writes its CTS
  const auto fault = kept.locals[side]->control().add(rule);
  kept.exchangeAll();
  REQUIRE(fault->counts().hits > 0);
  CHECK(kept.bytesByRails() > 0);
  CHECK_FALSE(kept.link.recv->peering().onlySharesMemory());
  // Expect: it comes back, and carries everything again.
  kept.locals[side]->control().clear();
  for (int i = 0; i < 200 && !(kept.shared(0).up() && kept.shared(1).up()); i++) kept.live(100);
  REQUIRE(kept.shared(0).up());
  CHECK(kept.shared(0).incarnation() > 1);
  kept.live(100);
  const uint64_t before = kept.bytesByRails();
  kept.exchangeAll();
  CHECK(kept.bytesByRails() == before);
}

TEST_CASE("a large message that is sent when no lane is up is done when it has arrived, and not before") {
  constexpr size_t kBytes = 1'000'000;
  fault::FaultRule never;
  never.kind = FaultKind::connectNever;
  KeptRails kept(1, &never);
  Peering& sender = kept.link.send->peering();
  REQUIRE(sender.lanesUp() == 1);  // the rail still connects
  Buffer from(*kept.link.send, kBytes), to(*kept.link.recv, kBytes);
  fillPattern(from.data(), kBytes, 1);
  kept.world->pump();
  const ReceiveSpec spec{to.data(), kBytes, 1, to.handle(), nullptr};
  Request* receiving = kept.link.recv->irecv(std::span(&spec, 1)).request;
  REQUIRE(receiving);
  kept.world->pump(5);
  sender.laneFailed(sender.lane(0), "a copy of GPU memory failed");
  REQUIRE(sender.lanesUp() == 0);
  Request* sending = kept.link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request;
  REQUIRE(sending);
  CHECK_FALSE(kept.link.send->test(sending, nullptr).done);
  bool sent = false, received = false;
  for (int i = 0; i < 20'000 && !(sent && received); i++) {
    if (!sent) sent = kept.link.send->test(sending, nullptr).done;
    if (!received) received = kept.link.recv->test(receiving, nullptr).done;
    kept.live(1);
  }
  CHECK(sent);
  REQUIRE(received);
  CHECK(firstMismatch(to.data(), kBytes, 1) == kBytes);
}

TEST_CASE("where no rail is left either, the comms end and name both") {
  KeptRails kept(1);
  kept.exchangeAll();
  kept.link.send->peering().laneFailed(kept.link.send->peering().lane(1), "its cable is out");
  kept.link.send->peering().laneFailed(kept.link.send->peering().lane(0), "a copy of GPU memory failed");
  for (int i = 0; i < 2000 && !kept.link.send->failed(); i++) kept.live(1);
  REQUIRE(kept.link.send->failed());
  const Ending* ending = kept.link.send->peering().ending();
  REQUIRE(ending);
  const std::string words = ending->error.message();
  CHECK(words.find("its cable is out") != std::string::npos);
  CHECK(words.find("a copy of GPU memory failed") != std::string::npos);
}
