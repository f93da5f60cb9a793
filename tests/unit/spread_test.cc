// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/spread.h"

#include "src/base/config.h"
#include "tests/support/catch.h"

// How many connections a lane asks for, by what the kernel would say of them.
using namespace weft;
using namespace weft::tcp;

namespace {

// Connections that all carry the same, and the time.
struct Network {
  explicit Network(size_t count) : flows(count) {}
  // For so long each one carries `mbps` and has more to send; what the lane asks for then.
  size_t carry(double mbps, bool waits = true, double peerFull = 0, Milliseconds time = Milliseconds(200)) {
    now += time;
    const auto us = static_cast<uint64_t>(std::chrono::microseconds(time).count());
    for (FlowCounts& flow : flows) {
      flow.acked += static_cast<uint64_t>(mbps * static_cast<double>(us) / 8);
      flow.busyUs += us;
      flow.peerFullUs += static_cast<uint64_t>(peerFull * static_cast<double>(us));
      flow.waits = waits;
    }
    return spread.isDue(now) ? spread.look(now, flows) : 0;
  }
  // More have come, and carry nothing yet.
  void grow(size_t count) { flows.resize(count); }

  Spread spread{0, 10000};
  std::vector<FlowCounts> flows;
  TimePoint now{std::chrono::seconds(1)};
};

}  // namespace

TEST_CASE("spread: the card's speed by a flow's rate is the number, with one for what is small") {
  Network network(3);
  CHECK(network.carry(1000) == 0);  // nothing to compare with
  CHECK(network.carry(1000) == 11);
  CHECK(network.spread.why() == "one flow carries 1000 Mb/s of the card's 10000");
}

TEST_CASE("spread: nothing is asked for where the flows are not what limits") {
  Network network(3);
  SECTION("they have nothing more to send") {
    for (int i = 0; i < 5; i++) CHECK(network.carry(1000, false) == 0);
  }
  SECTION("the peer has no room") {
    for (int i = 0; i < 5; i++) CHECK(network.carry(1000, true, 0.6) == 0);
  }
  SECTION("together they are as quick as the card") {
    for (int i = 0; i < 5; i++) CHECK(network.carry(3000) == 0);
  }
  SECTION("the kernel says nothing") {
    for (int i = 0; i < 5; i++) CHECK(network.carry(0, true, 0, Milliseconds(0)) == 0);
  }
}

TEST_CASE("spread: more that carry no more settle it") {
  Network network(3);
  network.carry(1000);
  REQUIRE(network.carry(1000) == 11);
  CHECK(network.carry(1000) == 0);  // they are not here yet
  network.grow(10);
  CHECK(network.carry(300) == 0);  // they have just come
  CHECK_FALSE(network.spread.settled());
  CHECK(network.carry(300) == 0);
  CHECK(network.spread.settled());
  for (int i = 0; i < 5; i++) CHECK(network.carry(300) == 0);
}

TEST_CASE("spread: more that carry more are measured again") {
  Network network(3);
  network.carry(2000);
  REQUIRE(network.carry(2000) == 6);
  network.grow(5);
  network.carry(1000);
  CHECK(network.carry(1400) == 0);  // 7000 in place of 6000
  CHECK(network.carry(1400) == 9);
}

TEST_CASE("spread: without the card's speed the number doubles as long as that pays") {
  Network network(3);
  network.spread = Spread(0, 0);
  network.carry(1000);
  CHECK(network.carry(1000) == 7);
  CHECK(network.spread.why() == "one flow carries 1000 Mb/s, and the speed of the card is not known");
  network.grow(6);
  network.carry(1000);
  CHECK(network.carry(1000) == 0);
  CHECK(network.carry(1000) == 13);
  network.grow(12);
  network.carry(500);
  CHECK(network.carry(500) == 0);
  CHECK(network.spread.settled());
}

TEST_CASE("spread: a number that was set stays") {
  Network network(3);
  network.spread = Spread(6, 10000);
  CHECK(network.spread.first() == 6);
  for (int i = 0; i < 5; i++) CHECK(network.carry(1000) == 0);
}
