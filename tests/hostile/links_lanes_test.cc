// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "src/base/config.h"
#include "src/base/random.h"
#include "tests/hostile/links_middle.h"
#include "tests/system/tcp/raw_peer.h"

// Lanes over tcp with a man in the middle: while they greet, and while they carry sealed bytes.
using namespace weft;
using namespace weft::test;
using namespace weft::hostile;
using enum CompletionKind;

namespace {

constexpr size_t kGreeting = tcp::kDoorBytes + tcp::kHelloBytes;

// An end that is not dialled waits for its whole time.
Config hurriedConfig(bool sealed, int connectMs = 3000) {
  Config config = tcpConfig(1);
  config.connectTimeout = Milliseconds(connectMs);
  if (sealed) config.encrypt = "all";
  return config;
}

size_t seeds() {
  return environmentValue("WEFT_TEST_FULL") ? 8000 : 600;
}

bool decided(const SeamEnd& end) {
  return end.count(connected) > 0;
}

// True: both ends say that the lane stands.
bool meet(SeamEnd& a, SeamEnd& b) {
  a.connectTo(b);
  b.connectTo(a);
  REQUIRE(pumpUntil({&a, &b}, [&] { return decided(a) && decided(b); }));
  return a.count(connected, true) == 1 && b.count(connected, true) == 1;
}

}  // namespace

TEST_CASE("lanes: a man in the middle of a greeting gets no lane of his own, and stops none for ever") {
  Middle middle;
  auto transport = tcp::makeTransport(hurriedConfig(false, 50));
  size_t played = 0, holds = 0;
  for (uint64_t seed = 1; seed <= seeds(); seed++) {
    Plan plan = planOf(seed, kGreeting);
    if (plan.trick == Trick::hold && ++holds % 10 != 0) plan.trick = Trick::cut;
    middle.follow(plan);
    SeamEnd a(*transport, 4096), b(*transport, 4096);
    const bool stands = meet(a, b);
    INFO("seed " << seed << ": " << nameOf(plan.trick) << (plan.toAcceptor ? " up at " : " down at ")
                 << plan.at);
    const size_t covered = plan.toAcceptor ? tcp::kHelloBytes : tcp::kDoorBytes;
    if (plan.trick == Trick::flip && plan.at < covered) CHECK_FALSE(stands);
    for (const SeamEnd* end : {&a, &b})
      if (end->count(connected, false) == 1) CHECK_FALSE(end->words.empty());
    played += middle.played() ? 1 : 0;
  }
  CHECK(played > seeds() / 4);
}

TEST_CASE("lanes: sealed bytes arrive, and are not to be read on the way") {
  Middle middle;
  const bool sealed = GENERATE(true, false);
  auto transport = tcp::makeTransport(hurriedConfig(sealed));
  middle.follow({});
  SeamEnd a(*transport, 1 << 20), b(*transport, 1 << 20);
  REQUIRE(meet(a, b));
  a.importFrom(b);
  a.fill(7);
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{40'000}, size_t{1} << 20}) {
    b.seen.clear();
    REQUIRE(a.post(a.work(Opcode::writeNotify, 0, 0, bytes)));
    REQUIRE(pumpUntil({&a, &b}, [&] { return b.count(notified) == 1; }));
    CHECK(b.holds(0, a, 0, bytes));
  }
  const Bytes up = middle.heard(true), down = middle.heard(false);
  const auto shows = [&](const Bytes& heard) {
    const auto* own = reinterpret_cast<const std::byte*>(a.bytes.data());
    return std::search(heard.begin(), heard.end(), own, own + 64) != heard.end();
  };
  CHECK((shows(up) || shows(down)) != sealed);
}

TEST_CASE("lanes: sealed bytes that are changed on the way end the lane, which names them") {
  Middle middle;
  auto transport = tcp::makeTransport(hurriedConfig(true));
  SeededRandom random(9);
  for (int round = 0; round < 60; round++) {
    const auto trick = static_cast<Trick>(1 + random.below(kTricks - 2));  // all but holding back
    middle.follow({trick, true, kGreeting + 100 + random.below(200'000), false});
    SeamEnd a(*transport, 1 << 18), b(*transport, 1 << 18);
    REQUIRE(meet(a, b));
    // Of the two ends the one that dialled writes.
    SeamEnd& from = std::ranges::lexicographical_compare(a.lane->address(), b.lane->address()) ? a : b;
    SeamEnd& to = &from == &a ? b : a;
    from.importFrom(to);
    from.fill(3);
    REQUIRE(from.post(from.work(Opcode::writeNotify, 0, 0, 1 << 18)));
    INFO("round " << round << ": " << nameOf(trick));
    REQUIRE(pumpUntil({&a, &b}, [&] { return to.count(broken) == 1 || to.count(notified) == 1; }));
    if (!middle.played()) continue;
    if (to.count(notified) == 1) {
      CHECK(to.holds(0, from, 0, 1 << 18));  // two bytes that are alike were swapped
      continue;
    }
    CHECK(to.count(broken) == 1);
    if (trick == Trick::flip) CHECK(to.words.front().find("changed on their way") != std::string::npos);
  }
}

TEST_CASE("lanes: ends of which one encrypts do not meet, and say why") {
  auto plain = tcp::makeTransport(hurriedConfig(false)), sealed = tcp::makeTransport(hurriedConfig(true));
  SeamEnd a(*plain, 4096), b(*sealed, 4096);
  CHECK_FALSE(meet(a, b));
  CHECK(a.words.front().find("WEFT_ENCRYPT") != std::string::npos);
  CHECK(b.words.front().find("WEFT_ENCRYPT") != std::string::npos);
}
