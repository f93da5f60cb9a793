// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cmath>

#include "tests/support/catch.h"
#include "tools/sim/report.h"
#include "tools/sim/simulation.h"

// What the real protocol takes over cards that are computed, against what the numbers of the network allow.
using namespace weft;
using namespace weft::sim;

namespace {

Fabric simpleFabric() {
  Fabric fabric;
  fabric.name = "test";
  fabric.source = "this test";
  fabric.railGBps = 10;
  fabric.latencyUs = 5;
  fabric.messageUs = 1;
  fabric.callUs = 0;
  return fabric;
}

Setup setupFor(const char* operation, const char* algorithm, int ranks, std::vector<uint64_t> sizes) {
  Setup setup;
  if (operation) setup.operation = *perf::findOperation(operation, algorithm);
  setup.ranks = ranks;
  setup.fabric = simpleFabric();
  setup.config.gdr = "off";
  setup.config.stats = false;
  setup.config.eagerMaxBytes = 8192;
  setup.sizes = std::move(sizes);
  return setup;
}

Outcome outcomeOf(const Setup& setup) {
  auto outcome = simulate(setup, {});
  REQUIRE(outcome);
  CHECK(outcome->untold == 0);  // else times would depend on how often threads look
  return outcome.take();
}

// How far the value is from what was expected, as a share of that.
double distance(double value, double expected) {
  return std::abs(value - expected) / expected;
}

}  // namespace

TEST_CASE("one way takes the sender's time, the way and the receiver's time") {
  const auto way = measureOneWay(setupFor(nullptr, "", 2, {}), {});
  REQUIRE(way);
  CHECK(distance(way->stepUs, 7) < 0.02);
  CHECK(distance(way->cardGBps, 10) < 0.05);
}

TEST_CASE("a ring takes its steps, and many bytes its bandwidth") {
  const uint64_t large = uint64_t{64} << 20;
  const Outcome outcome = outcomeOf(setupFor("all_reduce", "ring", 8, {8, large}));
  CHECK(distance(outcome.rows[0].microseconds, 14 * 7) < 0.1);
  CHECK(distance(outcome.rows[1].microseconds, 2.0 * 7 / 8 * static_cast<double>(large) / 10e3) < 0.15);
  CHECK(outcome.rows[0].messages == uint64_t{8} * 14 * 2);
  CHECK(outcome.connections == 8);
  CHECK(outcome.mostSockets == 2);
  CHECK(outcome.firstResultUs > outcome.connectedUs);
}

TEST_CASE("a tree is there sooner than a ring of as many ranks") {
  const double tree = outcomeOf(setupFor("all_reduce", "tree", 32, {8})).rows[0].microseconds;
  const double ring = outcomeOf(setupFor("all_reduce", "ring", 32, {8})).rows[0].microseconds;
  CHECK(tree < ring / 3);
  CHECK(tree > 2 * 5 * 7 / 2);  // five levels up and down, and some ranks are near the root
}

TEST_CASE("everybody's card receives from all others") {
  const uint64_t bytes = uint64_t{16} << 20;
  const Outcome outcome = outcomeOf(setupFor("alltoall", "", 8, {bytes}));
  CHECK(distance(outcome.rows[0].microseconds, static_cast<double>(bytes) * 7 / 8 / 10e3) < 0.15);
}

TEST_CASE("rails carry a message together") {
  Setup setup = setupFor("broadcast", "", 2, {uint64_t{64} << 20});
  const double one = outcomeOf(setup).rows[0].slowest;
  setup.fabric.rails = 4;
  const double four = outcomeOf(setup).rows[0].slowest;
  CHECK(four < one / 3);
}

TEST_CASE("sockets may send before they are asked, and it takes no longer") {
  Setup setup = setupFor("all_reduce", "ring", 4, {8, uint64_t{1} << 20});
  setup.fabric.driver = Driver::tcp;
  const Outcome outcome = outcomeOf(setup);
  CHECK(distance(outcome.rows[0].microseconds, 6 * 7) < 0.2);
}

TEST_CASE("the same setup is the same run") {
  const Setup setup = setupFor("all_reduce", "ring", 4, {8, 300'000});
  const Outcome first = outcomeOf(setup);
  const Outcome again = outcomeOf(setup);
  CHECK(first.hash == again.hash);
  CHECK(first.steps == again.steps);
  CHECK(first.rows[1].microseconds == again.rows[1].microseconds);
}

TEST_CASE("connections alone: each rank has a link to each other") {
  Setup setup = setupFor(nullptr, "", 16, {});
  Outcome outcome = outcomeOf(setup);
  CHECK(outcome.connections == 16 * 15);
  CHECK(outcome.mostSockets == 15);
  CHECK(outcome.controlMails >= outcome.connections);
  setup.peers = 2;
  outcome = outcomeOf(setup);
  CHECK(outcome.connections == 16 * 2);
  CHECK(outcome.mostSockets == 4);
}
