// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "tests/unit/fault_sides.h"

// Each fault hits when it was told to, is counted, and does what its name says as seen through the seam.
using namespace weft;
using namespace weft::fault;
using namespace weft::test;
using enum CompletionKind;

TEST_CASE("drop reports success and nothing arrives") {
  Sides sides;
  const auto rule = sides.add({.kind = FaultKind::drop, .op = FaultOp::writeNotify, .nth = 2});
  sides.post(3);
  pump({&sides.a, &sides.b}, 10);
  CHECK(sides.a.count(sent, true) == 3);
  CHECK(sides.imms() == Imms{0, 2});
  CHECK_FALSE(sides.landed(1));
  CHECK(rule->counts().hits == 1);
  CHECK(rule->counts().seen == 3);
  CHECK(rule->counts().works == 2);
  CHECK(rule->counts().bytes == 16);
}

TEST_CASE("duplicate arrives twice and completes once") {
  Sides sides;
  const bool later = GENERATE(false, true);
  FaultRule twice{.kind = FaultKind::duplicate};
  if (later) twice.polls = 3;
  const auto rule = sides.add(twice);
  sides.post(1);
  pump({&sides.a, &sides.b}, 1);
  CHECK(sides.imms() == (later ? Imms{0} : Imms{0, 0}));
  CHECK(sides.a.count(sent, true) == 1);
  const std::vector<uint8_t> original(sides.a.bytes);
  sides.a.fill(2);  // the buffer is the user's again; the late copy must not care
  std::fill(sides.b.bytes.begin(), sides.b.bytes.end(), uint8_t{0});
  pump({&sides.a, &sides.b}, 10);
  CHECK(sides.imms() == Imms{0, 0});
  CHECK(std::equal(original.begin(), original.begin() + 8, sides.b.bytes.begin()) == later);
  CHECK(sides.a.count(sent) == 1);
  CHECK(rule->counts().hits == 1);
}

TEST_CASE("a duplicated work completes once both have left the buffer") {
  loop::LoopOptions network;
  network.landing = loop::Landing::whenPolled;
  network.bytesPerPoll = {8};
  Sides sides({}, network);
  sides.add({.kind = FaultKind::duplicate});
  sides.post(1, GENERATE(Opcode::writeNotify, Opcode::read));
  pump({&sides.b, &sides.a}, 1);
  CHECK(sides.a.count(sent) == 0);
  pump({&sides.b, &sides.a}, 1);
  CHECK(sides.a.count(sent, true) == 1);
}

TEST_CASE("delay lands and completes that many polls later") {
  Sides sides;
  FaultRule rule{.kind = FaultKind::delay};
  rule.polls = 4;
  sides.add(rule);
  sides.post(2);
  pump({&sides.a, &sides.b}, 3);
  CHECK_FALSE(sides.landed(0));
  CHECK(sides.imms() == Imms{1});
  CHECK(sides.a.count(sent) == 1);
  pump({&sides.a, &sides.b}, 1);
  CHECK(sides.landed(0));
  CHECK(sides.a.count(sent, true) == 2);
}

TEST_CASE("reorder lets later works pass") {
  Sides sides;
  const auto rule = sides.add({.kind = FaultKind::reorder, .window = 2});
  sides.post(4);
  pump({&sides.a, &sides.b}, 1);
  CHECK(sides.imms() == Imms{1, 2, 0, 3});
  CHECK(rule->counts().hits == 1);
  sides.add({.kind = FaultKind::reorder});
  sides.post(1);  // nothing follows: it is not kept for ever
  pump({&sides.a, &sides.b}, 5);
  CHECK(sides.landed(4));
}

TEST_CASE("hold lands only once the peer has polled") {
  Sides sides;
  const auto rule = sides.add({.kind = FaultKind::hold});
  sides.post(1);
  pump({&sides.a}, 50);
  CHECK_FALSE(sides.landed(0));
  CHECK(sides.a.count(sent) == 0);
  pump({&sides.b, &sides.a}, 1);
  CHECK(sides.landed(0));
  CHECK(sides.a.count(sent, true) == 1);
  CHECK(rule->counts().hits == 1);
}

TEST_CASE("early completes before anything landed, from a copy") {
  FaultOptions options;
  options.rules.push_back({.kind = FaultKind::early, .nth = 1});
  Sides sides(options);
  CHECK(sides.a.device->info().delivery == Delivery::selectable);
  sides.post(1);
  sides.a.poll();
  CHECK(sides.a.count(sent, true) == 1);
  CHECK_FALSE(sides.landed(0));
  const std::vector<uint8_t> original(sides.a.bytes);
  sides.a.fill(9);
  pump({&sides.a, &sides.b}, 5);
  CHECK(std::equal(original.begin(), original.begin() + 8, sides.b.bytes.begin()));
  CHECK(sides.a.count(sent) == 1);

  sides.add({.kind = FaultKind::early, .count = 0});
  Work delivered = sides.a.work(Opcode::write, 100, 100, 8);
  delivered.delivered = true;  // promised: never early
  REQUIRE(sides.a.post(delivered));
  sides.a.poll();
  CHECK(sides.a.count(sent, true) == 2);
  CHECK(sides.b.holds(100, sides.a, 100, 8));
}

TEST_CASE("refuse makes post take nothing, several times") {
  Sides sides;
  const auto rule = sides.add({.kind = FaultKind::refuse, .nth = 2, .times = 3});
  sides.post(1);
  const Work work = sides.a.work(Opcode::write, 0, 0, 8);
  for (int i = 0; i < 3; i++) CHECK_FALSE(sides.a.post(work));
  CHECK(sides.a.post(work));
  CHECK(rule->counts().hits == 1);
}

TEST_CASE("a completion error comes with and without the work landing") {
  const FaultKind kind = GENERATE(FaultKind::error, FaultKind::errorLanded);
  Sides sides;
  sides.add({.kind = kind, .nth = 1});
  sides.post(2);
  pump({&sides.a, &sides.b}, 2);
  CHECK(sides.a.count(sent, false) == 1);
  CHECK(sides.a.words.at(0).find("fault injector") != std::string::npos);
  CHECK(sides.a.count(sent, true) == 1);
  CHECK(sides.landed(0) == (kind == FaultKind::errorLanded));
  CHECK(sides.landed(1));
}

TEST_CASE("kill fails all that is outstanding, reports broken and lets nothing land") {
  loop::LoopOptions network;
  network.landing = loop::Landing::whenPolled;
  Sides sides({}, network);
  const auto rule = sides.add({.kind = FaultKind::kill, .nth = 3, .window = 2});
  sides.post(4);  // two in the network, two collected
  sides.a.poll();
  CHECK(sides.a.count(broken) == 1);
  CHECK(sides.a.count(sent, false) == 4);
  CHECK(rule->counts().works == 3);
  CHECK(rule->counts().bytes == 24);
  sides.post(1);
  pump({&sides.a, &sides.b}, 20);
  CHECK(sides.a.count(sent, false) == 5);
  CHECK(sides.imms().empty());
  CHECK(sides.b.bytes == std::vector<uint8_t>(kSideBytes));
  sides.a.lane->retire();
  sides.a.poll();
  CHECK(sides.a.seen.back().kind == retired);
  CHECK(sides.a.count(retired) == 1);
}

TEST_CASE("a killed lane whose window is never filled dies all the same") {
  Sides sides;
  sides.add({.kind = FaultKind::kill, .window = 100});
  sides.post(1);
  pump({&sides.a}, 20);
  CHECK(sides.a.count(broken) == 1);
  CHECK(sides.a.count(sent, false) == 1);
}

TEST_CASE("killLate lands what failed after the error, unless retired before") {
  const bool retire = GENERATE(false, true);
  Sides sides;
  const auto rule = sides.add({.kind = FaultKind::killLate, .window = 3});
  sides.post(3);
  sides.a.poll();
  CHECK(sides.a.count(broken) == 1);
  CHECK(sides.a.count(sent, false) == 3);
  CHECK_FALSE(sides.landed(0));
  if (retire) sides.a.lane->retire();
  pump({&sides.a, &sides.b}, 10);
  CHECK(sides.landed(0) == !retire);
  CHECK(sides.imms().size() == (retire ? 0 : 3));
  CHECK(sides.a.count(retired) == (retire ? 1 : 0));
  CHECK(sides.a.count(sent) == 3);
  CHECK(rule->counts().hits == 1);
}

TEST_CASE("a lane that died is not reported broken again") {
  loop::LoopOptions network;
  network.announceClose = true;
  Sides sides({}, network);
  sides.add({.kind = FaultKind::killLate});
  sides.post(1);
  sides.b.lane.reset();
  pump({&sides.a}, 20);
  CHECK(sides.a.count(broken) == 1);
}

TEST_CASE("a silently dead lane says nothing until it is retired") {
  Sides sides;
  const auto rule = sides.add({.kind = FaultKind::killSilent, .nth = 2});
  sides.post(4);
  pump({&sides.a, &sides.b}, 100);
  CHECK(sides.a.count(sent) == 1);
  CHECK(sides.a.count(broken) == 0);
  CHECK(sides.imms() == Imms{0});
  sides.a.lane->retire();
  pump({&sides.a, &sides.b}, 2);
  CHECK(sides.a.count(sent, false) == 3);
  CHECK(sides.a.seen.back().kind == retired);
  CHECK(rule->counts().hits == 1);
}

TEST_CASE("a port that goes down takes idle lanes too") {
  Sides sides;
  sides.add({.kind = FaultKind::kill, .op = FaultOp::poll, .nth = 5});
  pump({&sides.a}, 4);
  CHECK(sides.a.count(broken) == 0);
  pump({&sides.a}, 1);
  CHECK(sides.a.count(broken) == 1);
}

TEST_CASE("notifications can be lost, doubled and late on the receiving side") {
  Sides sides;
  const FaultKind kind = GENERATE(FaultKind::drop, FaultKind::duplicate, FaultKind::delay);
  FaultRule rule{.kind = kind, .op = FaultOp::notified, .nth = 2};
  const auto state = sides.right.control()->add(rule);
  sides.post(3);
  sides.b.poll();
  const Imms first = kind == FaultKind::duplicate ? Imms{0, 1, 1, 2} : Imms{0, 2};
  CHECK(sides.imms() == first);
  pump({&sides.b}, 10);
  CHECK(sides.imms() == (kind == FaultKind::delay ? Imms{0, 2, 1} : first));
  CHECK(sides.landed(1));
  CHECK(state->counts().hits == 1);
  CHECK(state->counts().bytes == 8);
}

TEST_CASE("completions can be lost, late or turned into errors") {
  Sides sides;
  const FaultKind kind = GENERATE(FaultKind::drop, FaultKind::delay, FaultKind::error);
  const auto state = sides.add({.kind = kind, .op = FaultOp::sent, .nth = 1});
  sides.post(2);
  sides.a.poll();
  CHECK(sides.a.count(sent, true) == 1);
  CHECK(sides.a.count(sent, false) == (kind == FaultKind::error ? 1 : 0));
  pump({&sides.a}, 10);
  CHECK(sides.a.count(sent, true) == (kind == FaultKind::delay ? 2 : 1));
  sides.a.lane->retire();
  pump({&sides.a}, 1);
  CHECK(sides.a.count(sent) == 2);
  CHECK(sides.a.seen.back().kind == retired);
  CHECK(sides.landed(0));
  CHECK(state->counts().hits == 1);
}

TEST_CASE("retire drops what is held back, tells each work and only then says retired") {
  const FaultKind kind =
      GENERATE(FaultKind::delay, FaultKind::hold, FaultKind::reorder, FaultKind::duplicate, FaultKind::early);
  FaultRule rule{.kind = kind, .count = 0, .window = 100};
  rule.polls = 100;
  FaultOptions options;
  options.rules.push_back(rule);
  Sides held(options);
  held.post(5);
  held.a.lane->retire();
  CHECK_FALSE(held.a.post(held.a.work(Opcode::write, 0, 0, 8)));
  pump({&held.a}, 3);
  CHECK(held.a.count(sent) == 5);
  CHECK(held.a.seen.back().kind == retired);
  std::fill(held.b.bytes.begin(), held.b.bytes.end(), uint8_t{0});
  pump({&held.a, &held.b}, 300);
  CHECK(held.b.bytes == std::vector<uint8_t>(kSideBytes));
  CHECK(held.b.count(notified) == (kind == FaultKind::duplicate ? 5 : 0));  // the first ones, at once
}
