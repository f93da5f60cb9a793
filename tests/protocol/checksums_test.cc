// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/checksums.h"

#include <cstring>

#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Sums of messages' bytes: what is whole passes, and what the fabric changed ends the comm in words,
// whichever way the message took.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

void silent(LogLevel, const char*, int, const char*) {}  // what fails is planned

class Scene {
 public:
  Scene(const char* checksum, bool direct, int rails = 1, const char* theirs = "")
      : world_(options(checksum, direct, rails, theirs)), link_(world_.connect(0)) {}

  // The receiver's error, or nothing.
  std::string carry(size_t bytes, bool early = false) {
    Buffer from(*link_.send, bytes), to(*link_.recv, bytes);
    fillPattern(from.data(), bytes, 7);
    const ReceiveSpec spec{to.data(), bytes, 4, to.handle(), nullptr};
    Request* receiving = early ? nullptr : link_.recv->irecv(std::span(&spec, 1)).request;
    Posted sent;
    for (int i = 0; i < 2000 && !sent.request; i++) {
      sent = link_.send->isend(from.data(), bytes, 4, from.handle(), nullptr);
      if (!sent.ok) return link_.recv->error().message();
      if (!sent.request) pass();
    }
    bool sending = true;
    for (int i = 0; i < 3000 && (sending || receiving || early); i++) {
      if (early && i == 5) {
        receiving = link_.recv->irecv(std::span(&spec, 1)).request;
        early = false;
      }
      if (sending) sending = !link_.send->testRequest(sent.request, nullptr).done && !link_.send->failed();
      if (receiving) {
        const Tested tested = link_.recv->testRequest(receiving, nullptr);
        if (!tested.ok) return link_.recv->error().message();
        if (tested.done) receiving = nullptr;
      }
      pass();
    }
    CHECK((!sending && !receiving));
    for (int i = 0; i < 200; i++) pass();  // the sums are told
    return link_.recv->failed() ? link_.recv->error().message() : "";
  }

  std::shared_ptr<fault::RuleState> corrupt(uint64_t nth) {
    fault::FaultRule rule;
    rule.kind = fault::FaultKind::corrupt;
    rule.op = fault::FaultOp::writeNotify;
    rule.nth = nth;
    return control_->add(rule);
  }
  uint64_t checked() { return link_.recv->counters()->checked.get(); }
  uint64_t differed() { return link_.recv->counters()->corrupt.get(); }
  Connection& link() { return link_; }
  World& world() { return world_; }

 private:
  WorldOptions options(const char* checksum, bool direct, int rails, const char* theirs) {
    setLogSink(silent);
    WorldOptions options;
    options.config.checksum = checksum;
    options.checksumOf[1] = theirs;
    for (int i = 0; i < 2; i++) {
      loop::LoopOptions fabric;
      fabric.rails = rails;
      fabric.messages = direct;
      if (direct) fabric.landing = loop::Landing::whenPolled;
      auto wrapped = fault::makeTransport(loop::makeTransport(fabric));
      if (i == 0) control_ = wrapped->control();
      options.transports[i] = std::move(wrapped);
      options.rails[i] = rails;
    }
    return options;
  }
  void pass() {
    world_.clock().advance(Milliseconds(1));
    world_.watch(0), world_.watch(1);
    world_.pump();
  }

  std::shared_ptr<fault::FaultControl> control_;
  World world_;
  Connection link_;
};

constexpr size_t kEager = 1000, kLarge = 400'000;

}  // namespace

TEST_CASE("whole messages pass, each of them checked, by each way") {
  for (const bool direct : {false, true}) {
    Scene scene("all", direct);
    for (int i = 0; i < 40; i++) {
      REQUIRE(scene.carry(kEager, i % 2 == 1).empty());
      REQUIRE(scene.carry(kLarge, direct && i % 2 == 1).empty());
    }
    CHECK(scene.checked() == 80);
    CHECK(scene.differed() == 0);
  }
}

TEST_CASE("a flipped bit ends the comm, with peer, rail, message and place") {
  for (const bool direct : {false, true})
    for (const bool early : {false, true}) {
      CAPTURE(direct, early);
      Scene scene("all", direct);
      const auto rule = scene.corrupt(3);
      REQUIRE(scene.carry(kEager, early).empty());
      REQUIRE(scene.carry(kEager, early).empty());
      const std::string why = scene.carry(kEager, early);
      CHECK(rule->counts().hits == 1);
      CHECK_THAT(why, hasText("tag 4, message 2 of 1000 bytes from node"));
      CHECK_THAT(why,
                 hasText("over rail loop0 is not what was sent: its bytes from 0 to 1000 differ, in 1 of 1"));
      CHECK(scene.differed() == 1);
      CHECK(scene.link().send->failed());  // it has heard
    }
}

TEST_CASE("the place of a flipped bit in a large message is a sixteenth of it") {
  for (const bool direct : {false, true}) {
    CAPTURE(direct);
    Scene scene("all", direct);
    scene.corrupt(1);  // the middle of what is there, backwards from the end
    CHECK_THAT(scene.carry(kLarge), hasText("its bytes from 375360 to 400000 differ, in 1 of 16 parts"));
  }
}

TEST_CASE("of several rails the one is named that carried it") {
  Scene scene("all", false, 2);
  scene.corrupt(2);
  std::string why;
  for (int i = 0; i < 3 && why.empty(); i++) why = scene.carry(2'000'000);
  CHECK_THAT(why, hasText("over rail loop1 is not what was sent") || hasText("over rail loop0 is not"));
  CHECK_THAT(why, !hasText("loop0, loop1"));
}

TEST_CASE("bytes that end where a rail's part begins are not that rail's") {
  Corruption found;
  found.sent.segmentCount = 3;
  for (uint8_t lane = 0; lane < 3; lane++) found.sent.segments[lane] = {lane, 100};
  found.begin = 100;
  found.end = 200;
  CHECK(found.lanes() == std::vector<uint8_t>{1});
  found.begin = 99;
  found.end = 201;
  CHECK(found.lanes() == std::vector<uint8_t>{0, 1, 2});
}

TEST_CASE("the side that checks less has its way, and one that does not say it checks nothing") {
  for (const char* theirs : {"off", "another", "all"}) {
    CAPTURE(theirs);
    Scene scene("all", false, 1, theirs);
    scene.corrupt(1);
    const bool checks = std::string(theirs) == "all";
    CHECK(scene.carry(kEager).empty() != checks);
    CHECK(scene.checked() == (checks ? 1 : 0));
  }
}

TEST_CASE("about one in 1,024 is sampled, and none where nothing is checked") {
  uint64_t sampled = 0, all = 0, none = 0;
  for (uint32_t k = 0; k < 1 << 20; k++) {
    sampled += SumRule(Checking::sample).concerns(k);
    all += SumRule(Checking::all).concerns(k);
    none += SumRule(Checking::off).concerns(k);
  }
  CHECK(sampled == 1 << 10);
  CHECK(all == 1 << 20);
  CHECK(none == 0);
  CHECK(SumRule(Checking::sample).concerns(0));
  Scene scene("sample", false);
  for (int i = 0; i < 1026; i++) REQUIRE(scene.carry(16).empty());
  CHECK(scene.checked() == 2);  // 0 and 1025
}

TEST_CASE("a sum whose message does not come, and one of its kind, wait and do no harm") {
  SumBook book(SumRule(Checking::sample));
  book.makeRoom();
  Corruption found;
  const Bytes bytes(5000, std::byte{3});
  for (uint32_t k = 0; k < 100 * 1025; k += 1025)
    CHECK(book.told(PayloadSum::of(1, k, bytes), &found) == SumBook::Found::waits);
  CHECK(book.received(PayloadSum::of(1, 99 * 1025, bytes), &found) == SumBook::Found::same);
  CHECK(book.received(PayloadSum::of(1, 0, bytes), &found) == SumBook::Found::waits);  // its sum has gone
  CHECK(book.received(PayloadSum::of(1, 98 * 1025, Bytes(4999, std::byte{3})), &found) ==
        SumBook::Found::differs);
  CHECK(found.got == 4999);
}
