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

// Ranks on one host: bytes are moved by its processors.
Setup hostSetup(const char* operation, int ranks, int processors, std::vector<uint64_t> sizes) {
  Setup setup = setupFor(operation, "", ranks, std::move(sizes));
  setup.fabric.host = {processors, 1, 1, 0.1, 0.5, 2, 4, {20, 20, 40, 40}, {10, 10, 20, 20}};
  setup.fabric.railGBps = setup.fabric.host.far.sendGBps;
  setup.fabric.latencyUs = 0;
  return setup;
}

TEST_CASE("two ranks that share a processor do one after the other what else goes side by side") {
  const uint64_t bytes = uint64_t{64} << 20;
  const auto alone = outcomeOf(hostSetup("broadcast", 2, 2, {bytes})).rows[0].slowest;
  const auto shared = outcomeOf(hostSetup("broadcast", 2, 1, {bytes})).rows[0].slowest;
  const double sends =
      static_cast<double>(bytes) * (1 / 10e3 + 2 / 20e3);  // copied to its output and its slot
  const double receives = static_cast<double>(bytes) * (1 / 10e3 + 1 / 20e3);
  CHECK(distance(alone, sends) < 0.1);
  CHECK(distance(shared, sends + receives) < 0.1);
}

TEST_CASE("bytes that the caches hold take less time, of much memory they hold none") {
  // What the caches save of the time, where with them everything is done at twice the rates.
  const auto savingAt = [](uint64_t bytes) {
    Setup setup = hostSetup("broadcast", 2, 2, {bytes});
    const double cached = outcomeOf(setup).rows[0].slowest;
    setup.fabric.host.near = setup.fabric.host.far;
    return 1 - cached / outcomeOf(setup).rows[0].slowest;
  };
  const uint64_t mib = uint64_t{1} << 20;
  const double half = savingAt(mib);
  CHECK(distance(half, 0.5) < 0.1);
  CHECK(savingAt(64 * mib) == 0);
  const double partly = savingAt(8 * mib);
  CHECK(partly > 0.05);
  CHECK(partly < half - 0.05);
}

TEST_CASE("a test that finds nothing takes its time, where something else has gone on") {
  Setup setup = hostSetup("all_reduce", 8, 1, {8});
  const double quick = outcomeOf(setup).rows[0].microseconds;
  setup.fabric.host.testUs = 1;
  CHECK(outcomeOf(setup).rows[0].microseconds > 1.1 * quick);
}

TEST_CASE("a small message waits until its receiver has the processor") {
  const double two = outcomeOf(hostSetup("all_reduce", 2, 2, {8})).rows[0].microseconds;
  CHECK(distance(two, 2 * 2) < 0.5);  // two steps of two calls, and looks between them
  const double few = outcomeOf(hostSetup("all_reduce", 8, 8, {8})).rows[0].microseconds;
  const double many = outcomeOf(hostSetup("all_reduce", 8, 2, {8})).rows[0].microseconds;
  CHECK(many > 1.5 * few);
}

TEST_CASE("ranks that share processors are the same run again") {
  for (const char* operation : {"all_reduce", "alltoall"}) {
    const Setup setup = hostSetup(operation, 5, 2, {8, 300'000});
    const Outcome first = outcomeOf(setup);
    const Outcome again = outcomeOf(setup);
    CHECK(first.hash == again.hash);
    CHECK(first.rows[1].microseconds == again.rows[1].microseconds);
  }
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
