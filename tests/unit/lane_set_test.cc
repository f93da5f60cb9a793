// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/lane_set.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

// The states of lanes, one event at a time, with an owner that writes down what it hears.
namespace weft::core {
namespace {

class Sink : public Endpoint {
 public:
  explicit Sink(int* retired) : retired_(retired) {}
  std::span<const std::byte> address() const override { return {}; }
  Status connect(std::span<const std::byte>) override { return {}; }
  Result<RemoteMemory> import(std::span<const std::byte>) override { return RemoteMemory{}; }
  size_t post(std::span<const Work> works) override { return works.size(); }
  void retire() override { ++*retired_; }

 private:
  int* retired_;
};

class Owner final : public LaneOwner {
 public:
  explicit Owner(size_t count) {
    config.railRetry = Milliseconds(100);
    config.railTimeout = Milliseconds(1000);
    config.laneTimeout = Milliseconds(10'000);
    for (size_t i = 0; i < count; i++)
      lanes.add(static_cast<uint8_t>(i), "rail" + std::to_string(i), std::make_unique<Sink>(&retired), count);
  }
  void allUp() {
    for (size_t i = 0; i < lanes.size(); i++) lanes.connected(lanes.at(i), true, "");
    heard.clear();
  }
  void pass(Milliseconds time, bool mayReopen = true) {
    clock.advance(time);
    lanes.watch(clock.now(), settled, mayReopen);
  }
  // What it heard since the last question.
  std::string take() {
    std::string all;
    for (const std::string& what : heard) all += (all.empty() ? "" : ", ") + what;
    heard.clear();
    return all;
  }

  TimePoint now() override { return clock.now(); }
  Result<std::unique_ptr<Endpoint>> openEndpoint(size_t) override {
    if (cardGone) return Error(Code::unavailable, "opening an endpoint", "the card is gone");
    return std::unique_ptr<Endpoint>(std::make_unique<Sink>(&retired));
  }
  void laneUp(Lane& lane) override { hear("up", lane); }
  bool awaitsPeer(Lane&) override { return peerMustStand; }
  CardRetries retriesOf(size_t) const override { return card; }
  void askPeer(TimePoint) override { heard.emplace_back("ask"); }
  void laneSuspected(Lane& lane) override { hear("suspected", lane); }
  void laneLost(Lane& lane) override { hear("lost", lane); }
  void laneFenced(Lane& lane) override { hear("fenced", lane); }
  void laneReopened(Lane& lane) override { hear("reopened", lane); }
  void laneStuck(Lane& lane) override { hear("stuck", lane); }
  void hear(const std::string& what, const Lane& lane) { heard.push_back(what + " " + lane.railName()); }

  Config config;
  FakeClock clock;
  CardRetries card;
  int retired = 0;
  bool settled = true;
  bool cardGone = false;
  bool peerMustStand = false;
  std::vector<std::string> heard;
  LaneSet lanes{*this, config};
};

// Others judge a job by these two numbers, so a lane on its first way up may not look like one that is down.
TEST_CASE("a lane counts as tried when it has been up or has failed") {
  Owner owner(2);
  LaneSet& lanes = owner.lanes;
  CHECK(lanes.tried() == 0);
  lanes.connected(lanes.at(0), true, "");
  CHECK((lanes.tried() == 1 && lanes.up() == 1));
  lanes.connected(lanes.at(1), false, "no answer");
  CHECK((lanes.tried() == 2 && lanes.up() == 1));
}

TEST_CASE("a large message is planned whatever its lanes do") {
  constexpr uint64_t kBytes = 1 << 20;
  Owner owner(2);
  LaneSet& lanes = owner.lanes;
  REQUIRE(lanes.mayBeSplit(kBytes));
  const auto whole = [&](uint8_t lane) {
    std::array<Segment, kMaxSegments> plan;
    const size_t count = lanes.split(kBytes, &plan);
    return count == 1 && plan[0].lane == lane && plan[0].offset == 0 && plan[0].length == kBytes;
  };
  CHECK(whole(0));  // it waits there until the lane is up
  lanes.suspect(lanes.at(1), "a cable was pulled");
  CHECK(whole(1));  // it is listed as lost there, and asked for again
  lanes.suspect(lanes.at(0), "another one");
  CHECK(whole(0));
}

TEST_CASE("a lane goes through its states, and no other way") {
  Owner owner(2);
  LaneSet& lanes = owner.lanes;
  Lane& lane = lanes.at(1);
  CHECK(lanes.connectingFirst());
  owner.allUp();
  CHECK(lanes.up() == 2);
  CHECK_FALSE(lanes.connectingFirst());
  for (const LaneState to : {LaneState::connecting, LaneState::up, LaneState::fenced, LaneState::accounted})
    CHECK_FALSE(lanes.enter(lane, to));

  lanes.suspect(lane, "a cable was pulled");
  CHECK(owner.take() == "suspected rail1");
  CHECK(lanes.up() == 1);
  CHECK(owner.retired == 0);
  lanes.suspect(lane, "again");  // says nothing new
  lanes.fenced(lane);            // nor can that be
  CHECK(owner.take().empty());
  lanes.answered(owner.clock.now());
  CHECK(owner.take() == "lost rail1");
  CHECK(owner.retired == 1);
  CHECK(lanes.causes() == "rail rail1: a cable was pulled");
  lanes.fenced(lane);
  CHECK(owner.take() == "fenced rail1");
  CHECK(lanes.isLeaving());
  lanes.accounted(lane);
  CHECK_FALSE(lanes.isLeaving());
  owner.pass(Milliseconds(99));
  CHECK(owner.take().empty());
  owner.pass(Milliseconds(1));
  CHECK(owner.take() == "reopened rail1");
  CHECK(lane.incarnation() == 2);
  lanes.connected(lane, true, "");
  CHECK(owner.take() == "up rail1");
  CHECK(lanes.up() == 2);
}

TEST_CASE(
    "the verdict on a suspected lane waits for an answer to a question of this time, or half a second") {
  const size_t count = GENERATE(1, 16);
  Owner owner(count);
  owner.allUp();
  const TimePoint before = owner.clock.now();
  owner.clock.advance(Milliseconds(1));
  for (size_t i = 0; i < count; i++) owner.lanes.suspect(owner.lanes.at(i), "broken");
  CHECK(owner.lanes.onlySuspected());
  CHECK(owner.lanes.anyLeft());
  owner.take();
  owner.lanes.answered(before);
  owner.pass(kSuspicion - Milliseconds(1));
  CHECK(owner.take().empty());
  SECTION("it answers") {
    owner.lanes.answered(owner.clock.now());
  }
  SECTION("it does not") {
    owner.pass(Milliseconds(1));
  }
  SECTION("it left them itself") {
    for (size_t i = 0; i < count; i++) owner.lanes.lose(owner.lanes.at(i), "the peer left it");
  }
  CHECK(owner.heard.size() == count);
  CHECK(owner.heard.front() == "lost rail0");
  CHECK_FALSE(owner.lanes.anyLeft());
  CHECK(owner.retired == static_cast<int>(count));
}

TEST_CASE("a silent lane beside another is suspected when the peer polls, the last one only after long") {
  Owner owner(2);
  owner.allUp();
  Work work;
  work.length = 1;
  REQUIRE(owner.lanes.at(0).submit(work, false, owner.clock));
  owner.pass(Milliseconds(600));
  CHECK(owner.take() == "ask");
  owner.pass(Milliseconds(600));
  CHECK(owner.take() == "ask");  // it did not answer
  owner.lanes.answered(owner.clock.now());
  owner.pass(Milliseconds(1));
  CHECK(owner.take() == "ask, suspected rail0");

  REQUIRE(owner.lanes.at(1).submit(work, false, owner.clock));
  owner.pass(Milliseconds(9'999), false);
  CHECK(owner.take() == "lost rail0");
  owner.pass(Milliseconds(1), false);
  CHECK(owner.take() == "suspected rail1");
}

TEST_CASE("where a peer's end loses what comes before it stands, a lane is up when both ends stand") {
  Owner owner(1);
  owner.peerMustStand = true;
  Lane& lane = owner.lanes.at(0);
  SECTION("ours first") {
    owner.lanes.connected(lane, true, "");
    CHECK_FALSE(lane.up());
    Work work;
    CHECK_FALSE(lane.submit(work, false, owner.clock));  // it waits
    owner.lanes.peerStands(lane);
  }
  SECTION("the peer's first") {
    owner.lanes.peerStands(lane);
    CHECK_FALSE(lane.up());
    owner.lanes.connected(lane, true, "");
  }
  CHECK(lane.up());
  CHECK(owner.take() == "up rail0");
  owner.lanes.peerStands(lane);  // says nothing new
  CHECK(owner.take().empty());
  // Expect: its next incarnation asks for both again.
  owner.lanes.lose(lane, "broken");
  owner.lanes.fenced(lane);
  owner.lanes.accounted(lane);
  owner.pass(Milliseconds(1000));
  owner.lanes.connected(lane, true, "");
  CHECK_FALSE(lane.up());
}

TEST_CASE("a lane that falters is avoided where another is steady, and left after a while") {
  Owner owner(2);
  owner.allUp();
  Lane &first = owner.lanes.at(0), &second = owner.lanes.at(1);
  owner.lanes.faltering(first, "its port is down");
  CHECK(first.up());
  for (int i = 0; i < 10; i++) CHECK(&owner.lanes.quickest(1) == &second);
  SECTION("it is soon over") {
    owner.pass(owner.config.railTimeout - Milliseconds(1));
    owner.lanes.faltering(first, "");
    owner.pass(owner.config.railTimeout);
    CHECK(owner.take().empty());
    CHECK(first.carries());
  }
  SECTION("it is not") {
    owner.pass(owner.config.railTimeout);
    CHECK(owner.take() == "suspected rail0");
    CHECK(first.cause() == "its port is down");
    owner.lanes.faltering(first, "");  // too late
    CHECK_FALSE(first.up());
  }
  SECTION("the other one falters too") {
    owner.lanes.faltering(second, "its port is down");
    owner.pass(10 * owner.config.railTimeout);
    CHECK(owner.take().empty());
    CHECK(owner.lanes.quickest(1).up());
    owner.lanes.faltering(second, "");
    owner.pass(Milliseconds(1));
    CHECK(owner.take() == "suspected rail0");
  }
}

TEST_CASE("the only lane goes on while it falters, until its patience is over") {
  Owner owner(1);
  owner.allUp();
  owner.lanes.faltering(owner.lanes.at(0), "its port is down");
  Work work;
  work.length = 1;
  REQUIRE(owner.lanes.quickest(1).submit(work, false, owner.clock));
  owner.pass(Milliseconds(1));  // its clock is read by looks alone
  owner.pass(owner.config.laneTimeout - Milliseconds(1));
  CHECK(owner.take().empty());
  owner.pass(Milliseconds(1));
  CHECK(owner.take() == "suspected rail0");
}

// NCCL_IB_TIMEOUT=22 and 7 retries: the first after 17 s, the last one ends after 137 s.
TEST_CASE("a lane is not blamed before its card had its tries") {
  Owner owner(2);
  owner.card = {Milliseconds(17'180), Milliseconds(137'439)};
  owner.allUp();
  Work work;
  work.length = 1;
  REQUIRE(owner.lanes.at(0).submit(work, false, owner.clock));
  const auto answers = [&](Milliseconds time) {
    owner.pass(time);
    owner.lanes.answered(owner.clock.now());
    owner.pass(Milliseconds(1));
  };
  answers(3 * owner.card.first);
  CHECK(owner.lanes.up() == 2);
  answers(2 * owner.card.first);
  CHECK(owner.lanes.up() == 1);

  REQUIRE(owner.lanes.at(1).submit(work, false, owner.clock));
  owner.pass(owner.card.all, false);
  CHECK(owner.lanes.up() == 1);
  owner.pass(owner.card.all / 4 + Milliseconds(1), false);
  CHECK(owner.lanes.up() == 0);
  CHECK(owner.lanes.patience() > owner.card.all);
}

TEST_CASE("a card that gives up soon leaves the settings as they are") {
  Owner owner(2);
  owner.card = {Milliseconds(100), Milliseconds(700)};
  CHECK(owner.lanes.patience() == owner.config.laneTimeout);
  CHECK(railPatienceWith(owner.config, owner.card) == owner.config.railTimeout);
  owner.card = {Milliseconds(17'180), Milliseconds(17'180)};  // one try is all
  CHECK(railPatienceWith(owner.config, owner.card) == patienceWith(owner.config, owner.card));
}

TEST_CASE("what a lane is given while it connects leaves when it is up") {
  Owner owner(2);
  LaneSet& lanes = owner.lanes;
  lanes.lose(lanes.at(0), "broken");
  lanes.fenced(lanes.at(0));
  lanes.accounted(lanes.at(0));
  // Expect: of a lane that is gone and one that connects the latter is chosen.
  Lane& lane = lanes.quickest(1);
  CHECK(&lane == &lanes.at(1));
  Work work;
  work.length = 1;
  CHECK_FALSE(lane.submit(work, false, owner.clock));
  CHECK(lane.hasQueued());
  owner.clock.advance(owner.config.laneTimeout * 2);
  lanes.connected(lane, true, "");
  owner.take();
  owner.pass(Milliseconds(1), false);
  CHECK(owner.take().empty());  // it is not blamed for the time in which it connected
  CHECK_FALSE(lanes.flush(owner.clock.now()));
  CHECK_FALSE(lane.hasQueued());
  CHECK(lane.waiting());
}

TEST_CASE("nobody is blamed while the peer's process does not answer") {
  Owner owner(1);
  owner.allUp();
  Work work;
  work.length = 1;
  REQUIRE(owner.lanes.at(0).submit(work, false, owner.clock));
  owner.settled = false;
  for (int i = 0; i < 100; i++) owner.pass(Milliseconds(1000));
  CHECK(owner.take().empty());
}

TEST_CASE("a lane that is not accounted for in time is reported, and not before") {
  Owner owner(2);
  owner.allUp();
  owner.lanes.lose(owner.lanes.at(0), "broken");
  owner.take();
  const Milliseconds bound = owner.config.laneTimeout + owner.config.closeTimeout;
  owner.pass(bound / 2);
  owner.lanes.fenced(owner.lanes.at(0));
  owner.take();
  owner.pass(bound / 2 - Milliseconds(1));
  CHECK(owner.take().empty());
  owner.pass(Milliseconds(1));
  CHECK(owner.take() == "stuck rail0");
}

TEST_CASE("a lane that dies young is tried again after ever longer pauses, up to a bound") {
  Owner owner(2);
  owner.allUp();
  Lane& lane = owner.lanes.at(0);
  Milliseconds last{0};
  for (int i = 0; i < 12; i++) {
    owner.lanes.lose(lane, "broken");
    owner.lanes.fenced(lane);
    owner.lanes.accounted(lane);
    Milliseconds pause{0};
    while (lane.state() == LaneState::accounted) {
      owner.pass(Milliseconds(100));
      pause += Milliseconds(100);
    }
    CHECK(pause >= last);
    last = pause;
    owner.lanes.connected(lane, true, "");
  }
  CHECK(last == Milliseconds(30'000));
  // Expect: one that lived for a while is tried soon, and one whose card is gone later.
  owner.clock.advance(Milliseconds(2000));
  owner.lanes.lose(lane, "broken");
  owner.lanes.fenced(lane);
  owner.lanes.accounted(lane);
  owner.cardGone = true;
  owner.pass(Milliseconds(100));
  CHECK(lane.cause() == "opening an endpoint: the card is gone");
  owner.cardGone = false;
  owner.pass(Milliseconds(199));
  CHECK(lane.state() == LaneState::accounted);
  owner.pass(Milliseconds(1));
  CHECK(lane.state() == LaneState::connecting);
}

TEST_CASE("messages go by lanes that are up, and where none is by one that will be accounted for") {
  Owner owner(3);
  owner.allUp();
  owner.lanes.lose(owner.lanes.at(0), "broken");
  for (int i = 0; i < 6; i++) CHECK(owner.lanes.quickest(8).up());
  owner.lanes.suspect(owner.lanes.at(1), "broken");
  owner.lanes.suspect(owner.lanes.at(2), "broken");
  for (int i = 0; i < 6; i++) CHECK(owner.lanes.quickest(8).state() == LaneState::suspected);
}

TEST_CASE("a rail is up where a lane on it is") {
  Owner owner(2);
  CHECK_FALSE(owner.lanes.upOn(0));
  owner.lanes.connected(owner.lanes.at(0), true, "");
  CHECK(owner.lanes.upOn(0));
  CHECK_FALSE(owner.lanes.upOn(1));
  CHECK_FALSE(owner.lanes.upOn(2));
  CHECK(owner.lanes.find(1) == &owner.lanes.at(1));
  CHECK(owner.lanes.find(2) == nullptr);
  CHECK(owner.lanes.upWithout(1));
  CHECK_FALSE(owner.lanes.upWithout(0));
  owner.lanes.connected(owner.lanes.at(1), true, "");
  owner.lanes.lose(owner.lanes.at(0), "broken");
  CHECK_FALSE(owner.lanes.upOn(0));
  CHECK(owner.lanes.upOn(1));
  CHECK(owner.lanes.upWithout(0));
}

TEST_CASE("a lane that has one work at a time is measured, and what it was is forgotten in time") {
  Owner owner(2);
  owner.allUp();
  Lane& measured = owner.lanes.at(0);
  CHECK(measured.load().bytesPerUs == 0);
  Work work;
  work.length = 4 << 20;
  for (int i = 0; i < 3; i++) {
    REQUIRE(measured.submit(work, false, owner.clock));
    owner.clock.advance(std::chrono::microseconds(1 << 20));
    measured.finished(work.length, owner.clock);
    CHECK(measured.load().bytesPerUs == 4);
    owner.clock.advance(std::chrono::seconds(1));  // idle
  }
  for (int i = 0; i < 500; i++) measured.countRound();
  CHECK(measured.load().bytesPerUs == 0);
}

}  // namespace
}  // namespace weft::core
