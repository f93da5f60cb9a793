// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/common/lane_life.h"

#include <cerrno>
#include <vector>

#include "src/base/config.h"
#include "tests/support/catch.h"

// The one table of a lane's states, and what each change does.
using namespace weft;

namespace {

using enum LaneState;

// Writes down what it is told to do.
class Lane : public Endpoint, public LaneLife::Host {
 public:
  explicit Lane(const Clock& clock)
      : life(*this, clock,
             {Milliseconds(100), Milliseconds(10), "no answer in time", "nobody acknowledged"}) {}

  std::span<const std::byte> address() const override { return {}; }
  Status connect(std::span<const std::byte>) override { return {}; }
  Result<RemoteMemory> import(std::span<const std::byte>) override { return RemoteMemory{}; }
  size_t post(std::span<const Work>) override { return 0; }
  void retire() override { life.apply(LaneEvent::retire); }

  size_t dropOutstanding(LaneState from, int, const std::string&) override {
    did.push_back(std::string("drop from ") + nameOf(from));
    return works;
  }
  void startFence(LaneState from) override {
    did.push_back(std::string("fence from ") + nameOf(from));
    if (fencedAtOnce) life.apply(LaneEvent::fenced);
  }
  std::optional<int> fenced(TimePoint, bool late) override {
    return late ? std::optional<int>(ETIMEDOUT) : outcome;
  }
  void endFence(bool passed) override { did.push_back(passed ? "fenced" : "not fenced"); }
  void report(const Completion& completion, const std::string& why) override {
    CHECK(completion.source == this);
    CHECK(completion.ok == why.empty());
    told.push_back(completion);
    words.push_back(why);
  }
  std::string named(const char* what, const std::string& why) const override {
    return std::string(what) + " B: " + why;
  }
  Endpoint& endpoint() override { return *this; }

  // By the shortest way.
  void bringTo(LaneState state) {
    if (state == idle) return;
    if (state == dead) life.apply(LaneEvent::refused, EIO, "no");
    if (state >= retiring) life.apply(LaneEvent::retire);
    if (state == retired) life.apply(LaneEvent::fenced);
    if (state == connecting || state == ready) life.apply(LaneEvent::connect);
    if (state == ready) life.apply(LaneEvent::stands);
    REQUIRE(life.state() == state);
    did.clear();
    told.clear();
    words.clear();
  }

  LaneLife life;
  size_t works = 0;
  bool fencedAtOnce = false;
  std::optional<int> outcome;
  std::vector<std::string> did;
  std::vector<Completion> told;
  std::vector<std::string> words;
};

using Strings = std::vector<std::string>;

bool isOne(const Lane& lane, CompletionKind kind, int error) {
  return lane.told.size() == 1 && lane.told[0].kind == kind && lane.told[0].error == error;
}

}  // namespace

TEST_CASE("an event that a state does not know changes nothing and tells nobody") {
  const FakeClock clock;
  const auto next = nextLaneStates();
  for (size_t state = 0; state < kLaneStates; state++) {
    for (size_t event = 0; event < kLaneEvents; event++) {
      CAPTURE(nameOf(LaneState(state)), nameOf(LaneEvent(event)));
      Lane lane(clock);
      lane.bringTo(LaneState(state));
      const bool changes = next[state][event] != LaneState(state);
      CHECK(lane.life.apply(LaneEvent(event), EIO, "why") == changes);
      CHECK(lane.life.state() == next[state][event]);
      const bool silent = lane.told.empty() && lane.did.empty();
      CHECK(silent == (!changes || next[state][event] == connecting));
    }
  }
}

TEST_CASE("a lane that comes to stand says so, one that does not says why") {
  const FakeClock clock;
  Lane lane(clock);
  lane.bringTo(connecting);
  CHECK_FALSE(lane.life.mayConnect());
  SECTION("stands") {
    lane.life.apply(LaneEvent::stands);
    CHECK(isOne(lane, CompletionKind::connected, 0));
    CHECK(lane.life.ready());
  }
  SECTION("refused") {
    lane.life.apply(LaneEvent::refused, ECONNREFUSED, "nobody there");
    CHECK(isOne(lane, CompletionKind::connected, ECONNREFUSED));
    CHECK(lane.words[0] == "connecting to B: nobody there");
    CHECK(lane.did == Strings{"drop from connecting"});
  }
  SECTION("too late") {
    CHECK(lane.life.progress(clock.now()));
    clock.advance(Milliseconds(99));
    CHECK(lane.life.progress(clock.now()));
    CHECK(lane.told.empty());
    clock.advance(Milliseconds(1));
    CHECK_FALSE(lane.life.progress(clock.now()));
    CHECK(isOne(lane, CompletionKind::connected, ETIMEDOUT));
    CHECK(lane.words[0] == "connecting to B: no answer in time");
  }
  SECTION("retired meanwhile") {
    lane.retire();
    CHECK(isOne(lane, CompletionKind::connected, ECANCELED));
    CHECK(lane.did == Strings{"drop from connecting", "fence from dead"});
    CHECK(lane.life.state() == retiring);
  }
}

TEST_CASE("a lane is broken where no work tells of it") {
  const FakeClock clock;
  Lane lane(clock);
  lane.bringTo(ready);
  SECTION("with none under way") {
    lane.life.apply(LaneEvent::broke, ECONNRESET, "gone");
    CHECK(isOne(lane, CompletionKind::broken, ECONNRESET));
    CHECK(lane.words[0] == "lane to B: gone");
  }
  SECTION("with one under way") {
    lane.works = 1;
    lane.life.apply(LaneEvent::broke, ECONNRESET, "gone");
    CHECK(lane.told.empty());
  }
  SECTION("by a work") {
    lane.life.apply(LaneEvent::workFailed, ECANCELED, "gone");
    CHECK(lane.told.empty());
  }
  CHECK(lane.did == Strings{"drop from ready"});
  CHECK(lane.life.state() == dead);
}

TEST_CASE("a fence passes, is waited for, or is given up with its reason") {
  const FakeClock clock;
  Lane lane(clock);
  lane.bringTo(ready);
  SECTION("at once") {
    lane.fencedAtOnce = true;
    lane.retire();
    CHECK(isOne(lane, CompletionKind::retired, 0));
  }
  SECTION("when it is passed") {
    lane.retire();
    clock.advance(Milliseconds(9));
    CHECK(lane.life.progress(clock.now()));
    lane.life.restartFence();
    clock.advance(Milliseconds(9));
    CHECK(lane.life.progress(clock.now()));
    lane.outcome = 0;
    CHECK_FALSE(lane.life.progress(clock.now()));
    CHECK(isOne(lane, CompletionKind::retired, 0));
    CHECK(lane.did == Strings{"fence from ready", "fenced"});
  }
  SECTION("never") {
    lane.retire();
    clock.advance(Milliseconds(10));
    CHECK_FALSE(lane.life.progress(clock.now()));
    CHECK(isOne(lane, CompletionKind::retired, ETIMEDOUT));
    CHECK(lane.words[0] == "retiring the lane to B: nobody acknowledged");
    CHECK(lane.did == Strings{"fence from ready", "not fenced"});
    CHECK(lane.life.apply(LaneEvent::cut));
    CHECK(lane.life.state() == retiring);
  }
  CHECK_FALSE(lane.life.apply(LaneEvent::retire));
}
