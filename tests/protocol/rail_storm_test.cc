// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/protocol/rail_storm.h"

#include "providers/fault/transport.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "tests/support/sanitizer.h"

// Rails of the in-process fabric with every bad habit die at random.
using namespace weft;
using namespace weft::test;

namespace {

struct Habits {
  const char* name;
  int rails[2];
  bool shuffle;
  size_t piece;
  int eagerMax;
  bool overlapping;
};

constexpr Habits kHabits[] = {
    {"two rails", {2, 2}, false, 0, 8192, false},
    {"two rails, byte-wise and out of order", {2, 2}, true, 777, 4096, false},
    {"two rails, mostly eager", {2, 2}, true, 0, 65536, false},
    {"two rails, no eager", {2, 2}, true, 0, 0, false},
    {"two rails against three", {2, 3}, true, 0, 8192, false},
    {"four rails, several dead at once", {4, 4}, true, 0, 8192, true},
};

void silent(LogLevel, const char*, int, const char*) {}  // each rail that is left is reported

StormOptions stormOf(const Habits& habits, uint64_t seed) {
  StormOptions storm;
  storm.name = habits.name;
  storm.overlapping = habits.overlapping;
  storm.tick = [](World& world) { world.clock().advance(std::chrono::microseconds(250)); };
  Config& config = storm.world.config;
  config.sequenceBits = 10;
  config.eagerMaxBytes = habits.eagerMax;
  config.stripeMinBytes = 4096;
  config.laneTimeout = Milliseconds(8000);
  config.railTimeout = Milliseconds(250);
  config.railRetry = Milliseconds(1);
  for (int i = 0; i < 2; i++) {
    loop::LoopOptions fabric;
    fabric.rails = habits.rails[i];
    fabric.seed = seed;
    fabric.landing = loop::Landing::whenPolled;
    fabric.shuffle = habits.shuffle;
    fabric.pieceBytes = habits.piece;
    fabric.delivery = Delivery::selectable;
    fault::FaultOptions faults;
    faults.seed = seed;
    auto wrapped = fault::makeTransport(loop::makeTransport(fabric), faults);
    storm.controls[i] = wrapped->control();
    storm.world.rails[i] = habits.rails[i];
    storm.world.transports[i] = std::move(wrapped);
  }
  return storm;
}

size_t killsForEach() {
  if (environmentValue("WEFT_TEST_FULL")) return 2'000;
  return kSanitized ? 15 : 60;
}

}  // namespace

TEST_CASE("nothing is lost while rails die and come back") {
  setLogSink(silent);
  for (const Habits& habits : kHabits) {
    const uint64_t seed = 20'261'122;
    INFO(habits.name << ", seed " << seed);
    Storm(stormOf(habits, seed), seed).run(killsForEach());
  }
  setLogSink(nullptr);
}
