// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <cerrno>
#include <cstddef>
#include <new>
#include <optional>

#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Memory is refused in the middle of making a connection, once at each place where it is asked for. The call
// fails, and an engine keeps no comm that was never finished: a later look at all comms would read memory
// that is gone. A program of its own, because it replaces malloc.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

extern "C" {
void* __libc_malloc(size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

bool armed = false;  // the one thread of the test
bool refused = false;
int before = 0;  // so many are still granted

bool refuses() {
  if (!armed || refused || before-- > 0) return false;
  errno = ENOMEM;
  return refused = true;
}

}  // namespace

extern "C" void* malloc(size_t n) {
  return refuses() ? nullptr : __libc_malloc(n);
}
extern "C" void* aligned_alloc(size_t alignment, size_t n) {
  return refuses() ? nullptr : __libc_memalign(alignment, n);
}

namespace {

void silent(LogLevel, const char*, int, const char*) {}  // what fails is planned

// A call as the plugin makes it. Empty: it failed.
template <class Made, class Call>
std::optional<Made> guarded(bool lacks, Call call) {
  std::optional<Made> made;
  armed = lacks;
  try {
    auto result = call();
    armed = false;
    if (result) made.emplace(result.take());
  } catch (const std::bad_alloc&) {
    armed = false;
  }
  return made;
}

// One connection, until both ends have it or an end has failed. Whatever was made goes at the end.
void tryOnce(World& world, bool connectorLacks) {
  test::Side& connecting = world.side(0);
  test::Side& accepting = world.side(1);
  std::array<std::byte, control::kHandleBytes> handle{};
  auto listener = accepting.net->listen(accepting.context, accepting.device, handle);
  REQUIRE(listener);
  std::unique_ptr<SendComm> send;
  std::unique_ptr<RecvComm> recv;
  for (int i = 0; i < 20 && !(send && recv); i++) {
    if (!send) {
      auto made = guarded<std::unique_ptr<SendComm>>(connectorLacks, [&] {
        return connecting.net->connect(connecting.context, connecting.device, handle);
      });
      if (!made) break;
      send = *std::move(made);
    }
    if (!recv) {
      auto made = guarded<std::unique_ptr<RecvComm>>(!connectorLacks,
                                                     [&] { return accepting.net->accept(**listener); });
      if (!made) break;
      recv = *std::move(made);
    }
    world.pump();
  }
}

// A connect that failed is not called again, and what it has begun ends by its deadline.
void letGiveUp(World& world) {
  world.clock().advance(configOfTests().connectTimeout * 3);
  for (int i = 0; i < 2; i++) {
    std::array<std::byte, control::kHandleBytes> handle{};
    REQUIRE(world.side(i).net->listen(world.side(i).context, world.side(i).device, handle));
  }
  world.pump(10);
}

int commsOf(Engine& engine) {
  EngineEntry in(engine, EngineEntry::wait);
  int comms = 0;
  engine.eachComm([&](const CommBase&) { comms++; });
  return comms;
}

// The names are too long for a string's own bytes, as a cluster's are.
WorldOptions withLongNames() {
  WorldOptions options;
  options.domain = ".a-cluster.example";
  return options;
}

// The n-th request fails, for n from 0 until none is left to fail; each time in engines that have no peer
// yet.
void sweep(bool connectorLacks) {
  setLogSink(silent);
  constexpr int kMost = 5000;
  int n = 0;
  for (refused = true; refused && n < kMost; n++) {
    INFO("request " << n);
    World world{withLongNames()};
    world.clock().whileSleeping = [&] { world.pump(); };
    before = n;
    refused = false;
    tryOnce(world, connectorLacks);
    letGiveUp(world);
    for (int side = 0; side < 2; side++) REQUIRE(commsOf(*world.side(side).engine) == 0);
    // Expect: the next connection is made.
    { const Connection next = world.connect(0); }
    world.clock().whileSleeping = nullptr;
  }
  CHECK(n > 50);
  CHECK(n < kMost);
  setLogSink(nullptr);
}

}  // namespace

TEST_CASE("a connector that lacks memory leaves no comm behind") {
  sweep(true);
}

TEST_CASE("an acceptor that lacks memory leaves no comm behind") {
  sweep(false);
}
