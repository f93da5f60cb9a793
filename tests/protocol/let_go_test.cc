// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <memory>
#include <vector>

#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Comms that are destroyed without having been closed: nobody waits, the engine closes them with its passes,
// and the memory that was handed over with a comm stays until the fabric has no more work on it.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

constexpr size_t kBytes = 50'000;

void swallow(LogLevel, const char*, int, const char*) {}  // warnings are what is provoked

struct Quiet {
  Quiet() { setLogSink(swallow); }
  ~Quiet() { setLogSink(nullptr); }
};

// Side 0 sends to side 1. A second connection keeps their peering.
struct Ends {
  explicit Ends(WorldOptions options = {})
      : world(std::move(options)), link(world.connect(0)), other(world.connect(0)) {
    world.clock().whileSleeping = [this] { sleeps++; };
  }
  ~Ends() { world.clock().whileSleeping = nullptr; }

  // Memory that goes with a comm, registered on it.
  template <class OneComm>
  std::pair<std::byte*, MemoryHandle*> handOver(OneComm& comm, std::weak_ptr<const void>* kept) {
    auto memory = std::make_shared<std::vector<std::byte>>(kBytes);
    MemoryDesc desc;
    desc.address = memory->data();
    desc.length = kBytes;
    auto handle = comm.registerMemory(desc);
    REQUIRE(handle);
    *kept = memory;
    comm.keep(std::move(memory));
    return {static_cast<std::byte*>(desc.address), *handle};
  }

  void tick(int side) {
    world.clock().advance(Milliseconds(1));
    world.side(side).hub->handler().onTick(world.clock().now());
  }
  bool isFenced(int side) {
    EngineEntry in(*world.side(side).engine, EngineEntry::wait);
    return world.side(side).engine->peeringByNumber(0)->lanes().isFenced();
  }

  const Quiet quiet;
  World world;
  Connection link, other;
  int sleeps = 0;
};

// Counts the events that were begun and are not over.
struct OpenEvents final : public ProfilerSink {
  void* begin(void*, const MessageEvent&) override {
    open++;
    return this;
  }
  void end(void*, const MessageEvent&) override { open--; }
  int open = 0;
};

}  // namespace

TEST_CASE("a comm that nobody closed waits for nothing, and its memory goes when its lanes are fenced") {
  Ends ends;
  std::weak_ptr<const void> kept;
  const auto [data, handle] = ends.handOver(*ends.link.recv, &kept);
  const ReceiveSpec spec{data, kBytes, 1, handle, nullptr};
  REQUIRE(ends.link.recv->irecv(std::span(&spec, 1)).request);
  ends.world.pump(3);  // the sender may write from here on
  // Event: the sender's process says nothing any more, and the receiving comm is let go.
  ends.world.dropMessages = true;
  ends.link.recv.reset();
  // Expect: no wait. The control thread's passes close it: they cut the lanes, as the sender may be writing.
  CHECK(ends.sleeps == 0);
  bool always = true;
  for (int i = 0; i < 10'000 && !kept.expired(); i++) {
    ends.tick(1);  // the first one sees that somebody has just looked, and leaves it at that
    ends.tick(1);
    always = always && (!kept.expired() || ends.isFenced(1));
  }
  CHECK(kept.expired());
  CHECK(always);
  CHECK(ends.isFenced(1));
}

TEST_CASE("what was posted leaves though the comm is gone, and its memory stays until then") {
  Ends ends;
  std::weak_ptr<const void> kept;
  const auto [data, handle] = ends.handOver(*ends.link.send, &kept);
  Buffer to(*ends.link.recv, kBytes);
  const ReceiveSpec spec{to.data(), kBytes, 1, to.handle(), nullptr};
  Request* receiving = ends.link.recv->irecv(std::span(&spec, 1)).request;
  REQUIRE(receiving);
  ends.world.pump(3);
  fillPattern(data, kBytes, 5);
  REQUIRE(ends.link.send->isend(data, kBytes, 1, handle, nullptr).request);
  ends.link.send.reset();
  CHECK(ends.sleeps == 0);
  CHECK_FALSE(kept.expired());
  bool received = false;
  for (int i = 0; i < 1000 && !received; i++) {
    ends.world.pump();
    received = ends.link.recv->test(receiving, nullptr).done;
  }
  CHECK(received);
  CHECK(firstMismatch(to.data(), kBytes, 5) == kBytes);
  for (int i = 0; i < 1000 && !kept.expired(); i++) {
    ends.world.pump();
    ends.tick(0);
  }
  CHECK(kept.expired());
}

TEST_CASE("closing a context waits for the comms that were let go") {
  Ends ends;
  std::weak_ptr<const void> kept;
  const auto [data, handle] = ends.handOver(*ends.link.recv, &kept);
  const ReceiveSpec spec{data, kBytes, 1, handle, nullptr};
  REQUIRE(ends.link.recv->irecv(std::span(&spec, 1)).request);
  ends.world.pump(3);
  ends.world.dropMessages = true;
  ends.link.recv.reset();
  CHECK_FALSE(kept.expired());
  ends.world.side(1).context->close();
  CHECK(kept.expired());
  CHECK(ends.sleeps > 0);
}

TEST_CASE("an engine that ends cuts off the comms that were let go, and their memory goes behind its lanes") {
  std::weak_ptr<const void> kept;
  {
    Ends ends;
    const auto [data, handle] = ends.handOver(*ends.link.recv, &kept);
    const ReceiveSpec spec{data, kBytes, 1, handle, nullptr};
    REQUIRE(ends.link.recv->irecv(std::span(&spec, 1)).request);
    ends.world.pump(3);
    ends.world.dropMessages = true;
    ends.link.recv.reset();
    ends.other.recv.reset();
    CHECK_FALSE(kept.expired());
    CHECK(ends.sleeps == 0);
  }
  CHECK(kept.expired());
}

// The profiler belongs to the context, which may go before the comm is over.
TEST_CASE("the profiler hears of the end of what a comm had under way when it is let go") {
  auto profiler = std::make_shared<OpenEvents>();
  WorldOptions options;
  options.profiler = profiler;
  Ends ends(std::move(options));
  std::weak_ptr<const void> kept;
  const auto [data, handle] = ends.handOver(*ends.link.send, &kept);
  Buffer to(*ends.link.recv, kBytes);
  const ReceiveSpec spec{to.data(), kBytes, 1, to.handle(), nullptr};
  REQUIRE(ends.link.recv->irecv(std::span(&spec, 1)).request);
  ends.world.pump(3);
  int wanted = 0;
  REQUIRE(ends.link.send->isend(data, kBytes, 1, handle, &wanted).request);
  CHECK(profiler->open == 1);
  ends.link.send.reset();
  CHECK(profiler->open == 0);
  for (int i = 0; i < 1000 && !kept.expired(); i++) {
    ends.world.pump();
    ends.tick(0);
  }
  CHECK(kept.expired());
  CHECK(profiler->open == 0);
}
