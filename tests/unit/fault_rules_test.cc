// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <thread>

#include "tests/support/seam_conformance.h"
#include "tests/unit/fault_sides.h"

// Calls that fail, what a rule looks at, how rules come and go, and how they are spelled.
using namespace weft;
using namespace weft::fault;
using namespace weft::test;
using enum CompletionKind;

TEST_CASE("calls fail when told to, and only then") {
  auto inner = loop::makeTransport();
  FaultTransport transport(std::move(inner), {});
  const auto fails = [&](FaultKind kind, auto&& call) {
    const auto rule = transport.control()->add({.kind = kind, .nth = 2});
    CHECK(call());
    CHECK_FALSE(call());
    CHECK(call());
    CHECK(rule->counts().hits == 1);
    CHECK(rule->counts().seen == 3);
    transport.control()->clear();
  };
  const auto info = transport.discover()->front();
  const auto device = transport.open(info).take();
  const auto queue = device->openQueue({}).take();
  std::vector<std::byte> bytes(100);
  fails(FaultKind::discover, [&] { return static_cast<bool>(transport.discover()); });
  fails(FaultKind::noDevice, [&] { return !transport.discover()->empty(); });
  fails(FaultKind::open, [&] { return static_cast<bool>(transport.open(info)); });
  fails(FaultKind::openQueue, [&] { return static_cast<bool>(device->openQueue({})); });
  fails(FaultKind::openEndpoint, [&] { return static_cast<bool>(queue->openEndpoint()); });
  fails(FaultKind::registerMemory, [&] {
    return static_cast<bool>(device->registerMemory({.address = bytes.data(), .length = bytes.size()}));
  });
  fails(FaultKind::connect, [&] {
    auto lane = queue->openEndpoint().take();
    return static_cast<bool>(lane->connect(lane->address()));
  });
}

TEST_CASE("connections are refused or never finish") {
  const FaultKind kind = GENERATE(FaultKind::connectRefused, FaultKind::connectNever);
  FaultTransport transport(loop::makeTransport(), {});
  transport.control()->add({.kind = kind});
  SeamEnd end(transport, 4096);
  end.connectTo(end);
  pump({&end}, 100);
  CHECK(end.count(connected, true) == 0);
  CHECK(end.count(connected, false) == (kind == FaultKind::connectRefused ? 1 : 0));
  end.lane->retire();
  pump({&end}, 2);
  CHECK(end.count(retired) == 1);
}

TEST_CASE("rules look only at what they name") {
  loop::LoopOptions network;
  network.rails = 2;
  FaultTransport transport(loop::makeTransport(network), {});
  SeamEnd first(transport, 4096, {}, 0), second(transport, 4096, {}, 1);
  for (SeamEnd* end : {&first, &second}) end->connectTo(*end);
  pump({&first, &second}, 1);
  FaultRule rule{.kind = FaultKind::error, .count = 0};
  SECTION("rail") {
    rule.rail = 1;
  }
  SECTION("device") {
    rule.device = "loop1";
  }
  SECTION("lane") {
    rule.lane = 1;
  }
  SECTION("size") {
    rule.minBytes = 100;
  }
  SECTION("operation") {
    rule.op = FaultOp::read;
  }
  const auto state = transport.control()->add(rule);
  const size_t big = rule.minBytes ? 100 : 1;
  REQUIRE(first.post(first.work(Opcode::write, 0, 2000, 1)));
  REQUIRE(second.post(second.work(rule.op == FaultOp::read ? Opcode::read : Opcode::write, 0, 2000, big)));
  pump({&first, &second}, 1);
  CHECK(first.count(sent, true) == 1);
  CHECK(second.count(sent, false) == 1);
  CHECK(state->counts().hits == 1);
}

TEST_CASE("every rule counts every work, also one that another rule hit") {
  Sides sides;
  const auto first = sides.add({.kind = FaultKind::drop, .nth = 1});
  const auto second = sides.add({.kind = FaultKind::error, .nth = 2});
  sides.post(3);
  pump({&sides.a, &sides.b}, 1);
  CHECK(first->counts().hits == 1);
  CHECK(second->counts().hits == 1);
  CHECK(sides.imms() == Imms{2});
}

TEST_CASE("a work that was not taken is not counted") {
  FaultTransport transport(loop::makeTransport(), {});
  SeamEnd end(transport, 4096);
  end.importFrom(end);
  const auto rule = transport.control()->add({.kind = FaultKind::error, .nth = 3});
  for (int i = 0; i < 2; i++) CHECK_FALSE(end.post(end.work(Opcode::write, 0, 0, 1)));
  CHECK(rule->counts().seen == 0);
  end.connectTo(end);
  for (int i = 0; i < 3; i++) CHECK(end.post(end.work(Opcode::write, 0, 0, 1)));
  end.poll();
  CHECK(end.count(sent, false) == 1);
}

TEST_CASE("probability hits the same works for the same seed") {
  const auto run = [](uint64_t seed) {
    FaultOptions options;
    options.seed = seed;
    options.rules.push_back({.kind = FaultKind::drop, .probability = 0.3});
    Sides sides(options);
    sides.post(200);
    pump({&sides.a, &sides.b}, 20);
    return sides.imms();
  };
  const Imms one = run(5);
  CHECK(one == run(5));
  CHECK(one != run(6));
  CHECK(one.size() > 100);
  CHECK(one.size() < 180);
}

TEST_CASE("rules come and go at run time and keep their counts") {
  Sides sides;
  const auto rule = sides.add({.kind = FaultKind::drop, .count = 0});
  sides.post(2);
  sides.left.control()->clear();
  sides.post(1);
  pump({&sides.a, &sides.b}, 1);
  CHECK(sides.imms() == Imms{2});
  CHECK(rule->counts().hits == 2);
  const auto lines = report();
  const auto mine = [](const std::string& line) { return line.find("fault drop on any hit 2 of 2") == 0; };
  CHECK(std::count_if(lines.begin(), lines.end(), mine) == 1);
}

TEST_CASE("rules may change while Queues of other threads look at them") {
  FaultTransport transport(loop::makeTransport(), {});
  const auto run = [&] {
    SeamEnd end(transport, 4096);
    end.connectTo(end);
    for (int i = 0; i < 3000; i++) {
      end.post(end.work(Opcode::writeNotify, 0, 2048, 64));
      Completion found[32];
      end.queue->poll(found);
    }
  };
  std::thread one(run), two(run);
  for (int i = 0; i < 200; i++) {
    transport.control()->add({.kind = FaultKind::delay, .probability = 0.2});
    transport.control()->add({.kind = FaultKind::drop, .nth = 5, .count = 10});
    transport.control()->clear();
  }
  one.join();
  two.join();
  CHECK(transport.control()->report().size() == 400);
}

TEST_CASE("harmless faults break no promise of the seam") {
  SeamUnderTest seam;
  const std::string rules = GENERATE("fault=delay,p=0.3", "fault=reorder,p=0.4,window=2", "fault=hold,p=0.3",
                                     "seed=4,fault=delay,p=0.2,polls=1,fault=reorder,p=0.2,fault=hold,p=0.2");
  seam.label = rules;
  seam.make = [=] {
    loop::LoopOptions network;
    network.landing = rules.size() % 2 ? loop::Landing::whenPolled : loop::Landing::atOnce;
    return fault::makeTransport(loop::makeTransport(network), parseOptions(rules).take());
  };
  checkSeam(seam);
}

TEST_CASE("rules are read from text and a bad one is named") {
  const auto good = parseOptions(
      "seed=9,delivery=accepted,fault=kill,op=write,nth=7,count=0,window=3,fault=drop,p=0.25,"
      "rail=1,device=loop1,lane=2,minBytes=64,polls=5,times=2");
  REQUIRE(good);
  CHECK(good->seed == 9);
  CHECK(good->delivery == Delivery::accepted);
  REQUIRE(good->rules.size() == 2);
  CHECK(good->rules[0].kind == FaultKind::kill);
  CHECK(good->rules[0].op == FaultOp::write);
  CHECK(good->rules[0].nth == 7);
  CHECK(good->rules[0].window == 3);
  CHECK(good->rules[1].probability == 0.25);
  CHECK(good->rules[1].minBytes == 64);
  CHECK(good->rules[1].pollsOf() == 5);
  CHECK(parseOptions("")->rules.empty());
  for (const char* text :
       {"fault=dorp", "faul=drop", "nth=3", "fault=drop,nth=0", "fault=drop,p=0", "fault=drop,p=1.5",
        "fault=drop,nth", "fault=refuse,op=notified", "seed=-1", "delivery=always", "fault=drop,op=call"}) {
    CAPTURE(text);
    const auto bad = parseOptions(text);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().code() == Code::config);
  }
  CHECK(parseOptions("fault=dorp").error().detail().find("killSilent") != std::string::npos);
  CHECK(parseOptions("faul=drop").error().detail().find("window") != std::string::npos);
}
