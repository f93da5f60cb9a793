// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>

#include "providers/local/transport.h"
#include "src/base/random.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Which peerings go through shared memory: those whose both ends have found it, whoever connects to whom, and
// all others by their rails.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

// A process that nobody can see: its endpoints are not where they say.
class Hidden : public Endpoint {
 public:
  explicit Hidden(std::unique_ptr<Endpoint> inner)
      : inner_(std::move(inner)), address_(inner_->address().begin(), inner_->address().end()) {
    address_[10] ^= std::byte{1};  // of the nonce
  }
  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peer) override { return inner_->connect(peer); }
  Result<RemoteMemory> import(std::span<const std::byte> blob) override { return inner_->import(blob); }
  size_t post(std::span<const Work> works) override { return inner_->post(works); }
  void retire() override { inner_->retire(); }

 private:
  std::unique_ptr<Endpoint> inner_;
  Bytes address_;
};

class HiddenQueue : public Queue {
 public:
  explicit HiddenQueue(std::unique_ptr<Queue> inner) : inner_(std::move(inner)) {}
  size_t poll(std::span<Completion> out) override {
    const size_t count = inner_->poll(out);
    for (Completion& completion : out.first(count)) swapSource(&completion, inside_, outside_);
    return count;
  }
  Result<std::unique_ptr<Endpoint>> openEndpoint() override {
    TRY(auto inner, inner_->openEndpoint());
    inside_ = inner.get();
    auto made = std::make_unique<Hidden>(std::move(inner));
    outside_ = made.get();
    return std::unique_ptr<Endpoint>(std::move(made));
  }
  std::string explain(const Completion& completion) const override {
    Completion inner = completion;
    swapSource(&inner, outside_, inside_);
    return inner_->explain(inner);
  }
  QueueDepths depths() const override { return inner_->depths(); }

 private:
  static void swapSource(Completion* completion, const Endpoint* from, Endpoint* to) {
    if (completion->source == from) completion->source = to;
  }

  std::unique_ptr<Queue> inner_;
  Endpoint *inside_ = nullptr, *outside_ = nullptr;  // of the last one
};

class HiddenDevice : public Device {
 public:
  explicit HiddenDevice(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override {
    return inner_->registerMemory(desc);
  }
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override {
    TRY(auto inner, inner_->openQueue(wanted));
    return std::unique_ptr<Queue>(std::make_unique<HiddenQueue>(std::move(inner)));
  }

 private:
  std::shared_ptr<Device> inner_;
};

class HiddenTransport : public Transport {
 public:
  std::string name() const override { return "local"; }
  std::string version() const override { return {}; }
  Result<std::vector<DeviceInfo>> discover() override { return inner_->discover(); }
  std::vector<Refusal> refusals() const override { return {}; }
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override {
    TRY(auto inner, inner_->open(info));
    return std::shared_ptr<Device>(std::make_shared<HiddenDevice>(std::move(inner)));
  }

 private:
  std::unique_ptr<Transport> inner_ = local::makeTransport(configOfTests());
};

enum class Has { none, sharedMemory, hidden };

std::shared_ptr<Transport> localOf(Has has) {
  if (has == Has::none) return nullptr;
  if (has == Has::hidden) return std::make_shared<HiddenTransport>();
  return local::makeTransport(configOfTests());
}

struct SameHostWorld {
  explicit SameHostWorld(Has left, Has right, int rails = 1) : stats(std::make_shared<loop::LoopStats>()) {
    WorldOptions options;
    loop::LoopOptions fabric;
    fabric.rails = rails;
    fabric.stats = stats;
    for (int i = 0; i < 2; i++) {
      options.rails[i] = rails;
      options.transports[i] = loop::makeTransport(fabric);
      options.locals[i] = localOf(i == 0 ? left : right);
    }
    world = std::make_unique<World>(std::move(options));
    // A close waits for the other end, which this thread is as well.
    world->clock().whileSleeping = [this] { world->pump(); };
  }
  ~SameHostWorld() { world->clock().whileSleeping = nullptr; }
  uint64_t worksByRails() const {
    uint64_t works = 0;
    for (const loop::RailStats& rail : stats->rails) works += rail.works.load();
    return works;
  }
  std::shared_ptr<loop::LoopStats> stats;
  std::unique_ptr<World> world;
};

void exchangeAll(World& world, Connection& link) {
  uint64_t number = 1;
  for (const size_t bytes : {1u, 8u, 4096u, 9000u, 300'000u, 3'000'000u})
    exchange(world, link, bytes, number++, 100'000, [&] { world.pump(); });
}

}  // namespace

TEST_CASE("two processes that see each other's memory go through it, and by no rail") {
  SameHostWorld of(Has::sharedMemory, Has::sharedMemory, GENERATE(1, 2));
  Connection link = of.world->connect(GENERATE(0, 1));
  exchangeAll(*of.world, link);
  CHECK(of.worksByRails() == 0);
  CHECK(link.send->peering().laneCount() == 1);
  CHECK(link.send->peering().lane(0).railName() == "local");
  CHECK(link.recv->peering().lane(0).railName() == "local");
  Connection second = of.world->connect(0);  // on the peering that there is
  exchangeAll(*of.world, second);
  Connection back = of.world->connect(1);
  exchangeAll(*of.world, back);
  CHECK(of.worksByRails() == 0);
}

TEST_CASE("where one process does not, both go by their rails") {
  const auto [left, right] =
      GENERATE(std::pair{Has::sharedMemory, Has::none}, std::pair{Has::none, Has::sharedMemory},
               std::pair{Has::sharedMemory, Has::hidden}, std::pair{Has::hidden, Has::sharedMemory},
               std::pair{Has::hidden, Has::hidden});
  const int rails = GENERATE(1, 2);
  const int from = GENERATE(0, 1);
  CAPTURE(static_cast<int>(left), static_cast<int>(right), rails, from);
  SameHostWorld of(left, right, rails);
  Connection link = of.world->connect(from);
  exchangeAll(*of.world, link);
  CHECK(of.worksByRails() > 0);
  CHECK(link.send->peering().laneCount() == static_cast<size_t>(rails));
  CHECK(link.send->peering().lane(0).railName() == "loop0");
  CHECK(link.recv->peering().lane(0).railName() == "loop0");
  if (left == Has::hidden || right == Has::hidden) CHECK_FALSE(link.send->peering().sameHost().why().empty());
}

// Each is connector and acceptor on the one peering, and hears of the other's half by reply and by open.
TEST_CASE("connections that cross come to the same") {
  const auto [left, right] =
      GENERATE(std::pair{Has::sharedMemory, Has::sharedMemory}, std::pair{Has::sharedMemory, Has::hidden},
               std::pair{Has::hidden, Has::sharedMemory});
  const int seed = GENERATE(range(0, 24));
  CAPTURE(static_cast<int>(left), static_cast<int>(right), seed);
  SameHostWorld of(left, right);
  World& world = *of.world;
  std::array<std::byte, control::kHandleBytes> handles[2];
  std::unique_ptr<ListenComm> listeners[2];
  std::unique_ptr<SendComm> sends[2];
  std::unique_ptr<RecvComm> receives[2];
  for (int i = 0; i < 2; i++) {
    auto listener = world.side(i).net->listen(world.side(i).context, world.side(i).device, handles[i]);
    REQUIRE(listener);
    listeners[i] = listener.take();
  }
  SeededRandom random(static_cast<uint64_t>(seed));
  const auto done = [&] { return sends[0] && sends[1] && receives[0] && receives[1]; };
  for (int i = 0; i < 10'000 && !done(); i++) {
    const auto side = static_cast<int>(random.below(2));
    test::Side& here = world.side(side);
    switch (random.below(4)) {
      case 0:
        if (!sends[side]) {
          auto stepped = here.net->connect(here.context, here.device, handles[1 - side]);
          REQUIRE(stepped);
          sends[side] = stepped.take();
        }
        break;
      case 1:
        if (!receives[side]) {
          auto stepped = here.net->accept(*listeners[side]);
          REQUIRE(stepped);
          receives[side] = stepped.take();
        }
        break;
      case 2:
        world.progress(side);
        break;
      default:
        world.deliverMessages();
    }
  }
  REQUIRE(done());
  for (int i = 0; i < 2; i++) {
    Connection link;
    link.send.reset(static_cast<SendCommImpl*>(sends[i].release()));
    link.recv.reset(static_cast<RecvCommImpl*>(receives[1 - i].release()));
    exchangeAll(world, link);
  }
  CHECK((of.worksByRails() == 0) == (left == right));
}
