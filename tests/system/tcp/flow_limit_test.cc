// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "tests/system/tcp/raw_peer.h"

// Two cards of a network that limits each flow (limited_flows makes it): a lane gets as many connections as
// its card's speed needs, by itself.
using namespace weft;
using namespace weft::test;
using enum CompletionKind;

namespace {

constexpr size_t kBulk = 256 << 10;

Config cardConfig(const std::string& name, int streams, int speed) {
  Config config = tcpConfig(streams);
  config.socketIfname = "=" + name;
  config.tcpSpeedMbps = speed;
  return config;
}

struct Ends {
  Ends(int streams, int speed)
      : left(tcp::makeTransport(cardConfig("left1", streams, speed))),
        right(tcp::makeTransport(cardConfig("right1", streams, speed))),
        a(*left, 16 << 20),
        b(*right, 16 << 20),
        before(openDescriptors()) {
    joinEnds(a, b);
    a.fill(1);
    b.fill(2);
  }
  // An end that reads many has an epoll set, too.
  size_t connections() const { return (openDescriptors() - before) / 2; }
  // Sends on and on until `done` holds; false: it did not in time.
  bool sendUntil(SeamEnd& from, SeamEnd& to, const std::function<bool()>& done) {
    return pumpUntil({&from, &to}, [&] {
      while (posted - to.count(notified) < 48) {
        const size_t at = posted % 48 * kBulk;
        if (!from.post(from.work(Opcode::writeNotify, at, at, kBulk, posted))) break;
        posted++;
      }
      return done();
    });
  }

  std::unique_ptr<Transport> left, right;
  SeamEnd a, b;
  size_t before;
  size_t posted = 0;
};

}  // namespace

TEST_CASE("flow limit: connections become as many as the card's speed needs", "[limited]") {
  const bool aSends = GENERATE(true, false);
  Ends ends(0, 600);  // of 100 Mb/s each
  SeamEnd& from = aSends ? ends.a : ends.b;
  SeamEnd& to = aSends ? ends.b : ends.a;
  CHECK(ends.sendUntil(from, to, [&] { return ends.connections() >= 7; }));
  CHECK(ends.a.count(broken) + ends.b.count(broken) == 0);
  const size_t told = to.count(notified);
  CHECK(ends.sendUntil(from, to, [&] { return to.count(notified) >= told + 200; }));
  CHECK(ends.connections() <= tcp::kMostStreams + 1);
}

TEST_CASE("flow limit: a number that was set stays", "[limited]") {
  Ends ends(3, 600);
  CHECK(ends.sendUntil(ends.a, ends.b, [&] { return ends.b.count(notified) >= 200; }));
  CHECK(ends.connections() == 3);
}
