// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/protocol/rails.h"

// What two ends tell each other about a rail that died concerns what left by it, and nothing that came after.
using namespace weft;
using namespace weft::core;
using namespace weft::test;
using fault::FaultKind;
using fault::FaultOp;

namespace {

constexpr size_t kSmall = 100;

}  // namespace

TEST_CASE("of a message that arrived nothing is asked for again, whoever has its slot by now") {
  Rails rails(2);
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  fillPattern(from.data(), kLarge, 8);
  Request* receiving = rails.receive(to, kLarge);
  rails.live(5);
  const ReceiveSlot& slot = *slotOf(receiving);
  {
    // Event: the peer leaves a rail, and cannot tell of an earlier message into that slot, 16 uses ago.
    EngineEntry in(*rails.world().side(0).engine, EngineEntry::wait);
    Peering& peering = rails.send().peering();
    const RetiredMessage retired{0, 1, false, {{rails.recv().number(), slot.code(), 1, slot.k - 16, 3}}};
    peering.tell(MessageType::laneRetire, LaneMessage{0, 1, "a broken card", {}});
    peering.tell(MessageType::laneRetired, retired);
  }
  rails.live(20);
  CHECK(rails.lanesUp(1) == 2);  // it is over, and the rail is used again
  CHECK(slot.asked == 0);
  CHECK(rails.finished(rails.send(), rails.post(from, kLarge)));
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(firstMismatch(to.data(), kLarge, 8) == kLarge);
}

TEST_CASE("an eager message that arrived is not asked about when its rail is given up once more") {
  Rails rails(2, {.connectTimeout = Milliseconds(30)});
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  // Event: a message arrives by a rail that dies, and waits for its receive, so its credit does not return.
  const auto fault = rails.breakRail(0, FaultKind::errorLanded, FaultOp::writeNotify, 0);
  int sent = 0;
  for (; fault->counts().hits == 0; sent++) CHECK(rails.finished(rails.send(), rails.post(from, kSmall)));
  // Event: the other end cannot open the rail again for a while, so that it is given up after its time.
  const auto closed = rails.addRule(1, [] {
    fault::FaultRule rule;
    rule.kind = FaultKind::openEndpoint;
    rule.op = FaultOp::call;
    rule.rail = 0;
    rule.count = 0;
    return rule;
  }());
  rails.live(4000);
  CHECK(closed->counts().hits > 0);
  CHECK(rails.counters(0).lanesLeft > 1);
  // Expect: the other rail serves all the same, and both do in the end.
  CHECK_FALSE(rails.send().failed());
  for (int i = 0; i < sent; i++) CHECK(rails.finished(rails.recv(), rails.receive(to, kSmall)));
  fillPattern(from.data(), kLarge, 8);
  Request* receiving = rails.receive(to, kLarge);
  CHECK(rails.finished(rails.send(), rails.post(from, kLarge)));
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(firstMismatch(to.data(), kLarge, 8) == kLarge);
  rails.heal();
  rails.live(31'000);  // the longest pause before a rail is tried again
  CHECK(rails.lanesUp(0) == 2);
}

TEST_CASE("memory of a send may go while nobody knows what became of it on a rail that died") {
  Rails rails(2);
  Buffer to(rails.recv(), kLarge);
  auto from = std::make_unique<Buffer>(rails.send(), kLarge);
  rails.breakRail(0, FaultKind::kill, FaultOp::writeNotify, 1);
  (void)rails.receive(to, kLarge);
  (void)rails.post(*from, kLarge);
  for (int i = 0; i < 20 && rails.lane(0, 1).state() != LaneState::fenced; i++) {
    if (rails.lane(0, 1).state() < LaneState::retiring) rails.world().deliverMessages();
    rails.world().messages.clear();  // so that the peer does not say what it misses
    rails.world().progress(0);
  }
  REQUIRE(rails.lane(0, 1).state() == LaneState::fenced);
  // Event: it is given back, which ends in a fence, and the peer answers then.
  from.reset();
  rails.live(200);
  CHECK_FALSE(rails.lane(0, 1).up());
}
