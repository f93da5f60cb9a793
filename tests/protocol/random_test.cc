// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/config.h"
#include "tests/protocol/random_traffic.h"
#include "tests/support/sanitizer.h"

// Random traffic in random interleavings over fabrics with every known bad habit: whatever the order, each
// receive gets exactly the message with its tag and number, byte for byte, and everything ends.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

struct Habits {
  const char* name;
  int rails[2];
  bool polled, shuffle;
  size_t piece;
  Delivery delivery;
  int sequenceBits;
  int eagerMax;
};

constexpr Habits kHabits[] = {
    {"friendly", {1, 1}, false, false, 0, Delivery::always, 32, 8192},
    {"lands when polled, completes before", {1, 1}, true, false, 0, Delivery::accepted, 32, 8192},
    {"numbers of 10 bits", {1, 1}, true, true, 0, Delivery::selectable, 10, 8192},
    {"no eager", {1, 1}, true, true, 0, Delivery::selectable, 10, 0},
    {"four rails, out of order", {4, 4}, true, true, 0, Delivery::selectable, 10, 8192},
    {"two rails against three, byte-wise", {2, 3}, true, true, 777, Delivery::selectable, 10, 4096},
};

WorldOptions worldOf(const Habits& habits, uint64_t seed) {
  WorldOptions options;
  options.config.sequenceBits = habits.sequenceBits;
  options.config.eagerMaxBytes = habits.eagerMax;
  options.config.stripeMinBytes = 4096;
  for (int i = 0; i < 2; i++) {
    loop::LoopOptions fabric;
    fabric.rails = habits.rails[i];
    fabric.seed = seed;
    fabric.landing = habits.polled ? loop::Landing::whenPolled : loop::Landing::atOnce;
    fabric.shuffle = habits.shuffle;
    fabric.pieceBytes = habits.piece;
    fabric.delivery = habits.delivery;
    options.rails[i] = habits.rails[i];
    options.transports[i] = loop::makeTransport(fabric);
  }
  return options;
}

// Far more than the slowest fabric takes.
constexpr size_t kRoundsPerGroup = 1000;

// Enough for numbers of 10 bits to go around several times in each flow.
size_t groupsToSend() {
  if (environmentValue("WEFT_TEST_FULL")) return 20'000;
  return kSanitized ? 1'500 : 6'000;
}

}  // namespace

TEST_CASE("random traffic arrives whole over fabrics with every bad habit") {
  for (const Habits& habits : kHabits) {
    const uint64_t seed = 20'240'901;
    INFO(habits.name << ", seed " << seed);
    World world(worldOf(habits, seed));
    std::vector<std::unique_ptr<Traffic>> flows;
    for (int i = 0; i < 3; i++)
      flows.push_back(std::make_unique<Traffic>(world, i % 2, seed + static_cast<uint64_t>(i)));
    SeededRandom random(seed);
    const size_t groups = groupsToSend();
    for (size_t planned = 0, idle = 0, round = 0; idle < 3; round++) {
      if (round > groups * kRoundsPerGroup)
        FAIL("no end: " << flows[0]->state() << "; " << flows[1]->state() << "; " << flows[2]->state());
      idle = 0;
      for (auto& flow : flows) {
        if (planned < groups && random.below(8) == 0) flow->plan(), planned++;
        flow->step();
        idle += planned >= groups && flow->idle();
      }
      if (random.below(4) == 0) world.deliverMessages();
    }
    for (int i = 0; i < 2; i++) {
      const EngineCounters& counters = world.side(i).engine->counters();
      CHECK(counters.foreignNotes == 0);
      CHECK(counters.staleNotes == 0);
      CHECK(counters.duplicateNotes == 0);
    }
  }
}
