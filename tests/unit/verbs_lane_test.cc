// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cerrno>
#include <thread>

#include "providers/verbs/address.h"
#include "providers/verbs/receives.h"
#include "providers/verbs/trial.h"
#include "tests/support/catch.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/seam_end.h"
#include "tests/support/text.h"

// Lanes and discovery of verbs over a stand-in for libibverbs: what is asked of a card, and how often.
using namespace weft;
using namespace weft::test;

namespace {

using enum CompletionKind;

Config withPairs(int count) {
  Config config;
  config.qpsPerConnection = count;
  return config;
}

Config adaptive() {
  Config config;
  config.ibAdaptiveRouting = 1;
  return config;
}

Work notify(SeamEnd& end, size_t where, size_t length, uint32_t imm) {
  Work work = end.work(Opcode::writeNotify, where, where, length);
  work.imm = imm;
  return work;
}

std::vector<Completion> of(const SeamEnd& end, CompletionKind kind) {
  std::vector<Completion> found;
  for (const Completion& one : end.seen)
    if (one.kind == kind) found.push_back(one);
  return found;
}

// A lane between two cards, connected.
struct Lane {
  explicit Lane(FakeVerbs& fake, const Config& mine = {}, const Config& peers = {})
      : left(fake.transport({0}, mine)),
        right(fake.transport({1}, peers)),
        a(*left, 1 << 20),
        b(*right, 1 << 20) {
    a.fill(7);
    joinEnds(a, b);
  }
  bool allSent(size_t count) {
    return pumpUntil({&a, &b}, [&] { return a.count(sent) == count; });
  }
  std::unique_ptr<Transport> left, right;
  SeamEnd a, b;
};

constexpr size_t kLarge = 8192;

// What a new lane of that end would tell its peer.
verbs::LaneAddress announcedBy(SeamEnd& end) {
  const auto lane = end.queue->openEndpoint();
  REQUIRE(lane);
  const auto address = verbs::decodeLaneAddress((*lane)->address());
  REQUIRE(address);
  return *address;
}

std::vector<Refusal> refusalsOf(FakeVerbs& fake, const Config& config = {}) {
  const auto catalogue = verbs::discoverPorts(fake.library(), config);
  REQUIRE(catalogue);
  CHECK(catalogue->ports.empty());
  REQUIRE_FALSE(catalogue->refusals.empty());
  return catalogue->refusals;
}

}  // namespace

TEST_CASE("four queue pairs of a lane carry large works in turn, and small ones all go over the first") {
  FakeVerbs fake;
  Lane lane(fake, withPairs(4), withPairs(4));
  const auto pairs = fake.pairsOf(0);
  REQUIRE(pairs.size() == 4);
  for (size_t i = 0; i < 40; i++)
    REQUIRE(lane.a.post(lane.a.work(Opcode::writeNotify, i * kLarge, i * kLarge, kLarge, i)));
  REQUIRE(lane.allSent(40));
  CHECK(pumpUntil({&lane.b}, [&] { return lane.b.count(notified) == 40; }));
  CHECK(lane.b.holds(0, lane.a, 0, 40 * kLarge));
  for (const uint32_t pair : pairs) CHECK(fake.asked(pair).bytes == 10 * kLarge);
  for (const Completion& one : lane.b.seen) CHECK((one.kind != notified || one.source == lane.b.lane.get()));

  fake.resetCounts();
  std::vector<Work> burst(5, lane.a.work(Opcode::writeNotify, 0, 0, 64));
  burst.push_back(lane.a.work(Opcode::write, 0, 0, kLarge));
  CHECK(lane.a.lane->post(burst) == burst.size());
  REQUIRE(lane.allSent(46));
  CHECK(fake.asked(pairs[0]).posts == 1);
  CHECK(fake.asked(pairs[0]).requests == 5);
}

TEST_CASE("of two ends the one with fewer queue pairs decides") {
  FakeVerbs fake;
  const bool mineAreFewer = GENERATE(false, true);
  Lane lane(fake, withPairs(mineAreFewer ? 2 : 99), withPairs(mineAreFewer ? 99 : 2));
  const auto mine = fake.pairsOf(0), theirs = fake.pairsOf(1);
  REQUIRE(mine.size() == 2);
  REQUIRE(theirs.size() == 2);
  for (size_t i = 0; i < 2; i++) {
    CHECK(fake.connectedWith(mine[i]).dest_qp_num == theirs[i]);
    CHECK(fake.connectedWith(theirs[i]).dest_qp_num == mine[i]);
  }
  for (uint64_t i = 0; i < 4; i++) REQUIRE(lane.a.post(lane.a.work(Opcode::write, 0, 0, kLarge, i)));
  CHECK(lane.allSent(4));
}

TEST_CASE("peers that cannot be reached are tried again after a pause each, and reached once they can be") {
  FakeVerbs fake;
  fake.noRoute = true;
  const auto left = fake.transport({0}, withPairs(4)), right = fake.transport({1}, withPairs(4));
  SeamEnd a(*left, 64), b(*right, 64);
  const auto begin = std::chrono::steady_clock::now();
  a.connectTo(b);
  b.connectTo(a);
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  REQUIRE(pumpUntil({&a, &b}, [&] { return fake.lookedFor >= 8; }));
  const int times = fake.lookedFor;
  CHECK(times <= 8 * (1 + (std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(100)));
  fake.noRoute = false;
  CHECK(pumpUntil({&a, &b}, [&] { return a.count(connected, true) == 1 && b.count(connected, true) == 1; }));
}

// The system's time plays no part: this clock stands where nobody sleeps by it.
TEST_CASE("the pause before another attempt at a peer passes by the clock of the device") {
  const FakeClock clock;
  FakeVerbs fake;
  fake.clock = &clock;
  fake.noRoute = true;
  const auto left = fake.transport({0}), right = fake.transport({1});
  SeamEnd a(*left, 64), b(*right, 64);
  const TimePoint begin = clock.now();
  a.connectTo(b);
  b.connectTo(a);
  REQUIRE(pumpUntil({&a, &b}, [&] { return fake.lookedFor >= 6; }));
  CHECK(clock.now() - begin >= Milliseconds(200));
  fake.noRoute = false;
  CHECK(pumpUntil({&a, &b}, [&] { return a.count(connected, true) == 1 && b.count(connected, true) == 1; }));
}

TEST_CASE("a lane is fenced once all its queue pairs are") {
  FakeVerbs fake;
  Lane lane(fake, withPairs(4), withPairs(4));
  fake.hold(true);
  for (uint64_t i = 0; i < 4; i++) REQUIRE(lane.a.post(lane.a.work(Opcode::write, 0, 0, kLarge, i)));
  lane.a.lane->retire();
  fake.release(fake.pairsOf(0)[0]);
  pump({&lane.a, &lane.b}, 50);
  CHECK(lane.a.count(sent) == 1);
  CHECK(lane.a.count(retired) == 0);
  fake.hold(false);
  REQUIRE(pumpUntil({&lane.a}, [&] { return lane.a.count(retired) == 1; }));
  CHECK(lane.a.count(sent, true) == 4);
  CHECK(lane.a.seen.back().kind == retired);
}

TEST_CASE(
    "the failure of one queue pair is that of its lane, and the works on the others keep their verdict") {
  FakeVerbs fake;
  Lane lane(fake, withPairs(4), withPairs(4));
  fake.failNext(fake.pairsOf(0)[2]);
  for (uint64_t i = 0; i < 4; i++) REQUIRE(lane.a.post(lane.a.work(Opcode::write, 0, 0, kLarge, i)));
  REQUIRE(lane.allSent(4));
  CHECK(lane.a.count(sent, false) == 1);
  REQUIRE_FALSE(lane.a.words.empty());
  CHECK(contains(lane.a.words.front(), "did not acknowledge within all retries"));
  CHECK_FALSE(lane.a.post(lane.a.work(Opcode::write, 0, 0, kLarge)));
  lane.a.lane->retire();
  CHECK(pumpUntil({&lane.a}, [&] { return lane.a.count(retired) == 1; }));
}

TEST_CASE("a lane that is cut reports what every queue pair still held") {
  FakeVerbs fake;
  Config config = withPairs(4);
  config.closeTimeout = Milliseconds(1);
  Lane lane(fake, config, withPairs(4));
  fake.hold(true);
  for (uint64_t i = 0; i < 8; i++) REQUIRE(lane.a.post(lane.a.work(Opcode::write, 0, 0, kLarge, i)));
  lane.a.lane->retire();
  REQUIRE(pumpUntil({&lane.a}, [&] { return lane.a.count(retired) == 1; }));
  CHECK(lane.a.count(sent, false) == 8);
}

TEST_CASE("a lane is destroyed with works in flight on all its queue pairs, and its Queue lives on") {
  FakeVerbs fake;
  Lane lane(fake, withPairs(4), withPairs(4));
  fake.hold(true);
  for (uint64_t i = 0; i < 8; i++) REQUIRE(lane.a.post(lane.a.work(Opcode::write, 0, 0, kLarge, i)));
  lane.a.lane.reset();
  fake.hold(false);
  pump({&lane.a, &lane.b}, 10);
  CHECK(lane.a.count(sent) == 0);
}

// More of them than the receive queue holds, over many lanes, each of which ends with some that nobody read.
TEST_CASE("receives that the notifications of ended lanes took come back") {
  FakeVerbs fake;
  fake.saysLast = GENERATE(true, false);
  const bool fenced = GENERATE(true, false);
  const auto left = fake.transport({0}), right = fake.transport({1});
  SeamEnd target(*right, 4096, {.sends = 16, .notifications = 64});
  const size_t all = fake.receivesOf(1);
  REQUIRE(all > 0);
  for (size_t taken = 0; taken < 2 * all; taken += 30) {
    if (taken > 0) target.lane = target.queue->openEndpoint().take();
    target.seen.clear();
    SeamEnd sender(*left, 4096);
    joinEnds(sender, target);
    REQUIRE(fake.receivesOf(1) >= 30);
    for (uint32_t i = 0; i < 30; i++) REQUIRE(sender.post(notify(sender, 0, 8, i)));
    REQUIRE(pumpUntil({&sender}, [&] { return sender.count(sent, true) == 30; }));
    if (fenced) target.lane->retire();
    target.lane.reset();
    target.poll();
  }
  CHECK(pumpUntil({&target}, [&] { return fake.pairsOf(1).empty(); }));
  CHECK(fake.receivesOf(1) + verbs::Receives::kBatch > all);  // they are posted again by whole batches
}

// A card takes some hundred microseconds for each, and a job closes thousands of peers at once.
TEST_CASE("queue pairs are destroyed on another thread than the one that polls") {
  FakeVerbs fake;
  const auto left = fake.transport({0}), right = fake.transport({1});
  SeamEnd a(*left, 64), b(*right, 64);
  for (int i = 0; i < 20; i++) {
    if (i > 0) {
      a.lane = a.queue->openEndpoint().take();
      b.lane = b.queue->openEndpoint().take();
    }
    a.seen.clear();
    b.seen.clear();
    joinEnds(a, b);
    a.lane.reset();
    b.lane.reset();
  }
  CHECK(pumpUntil({&a, &b}, [&] { return fake.pairsOf(0).empty() && fake.pairsOf(1).empty(); }));
  CHECK(fake.destroyedByPoll == 0);
}

TEST_CASE("with adaptive routing a large write and its notification go apart, others do not") {
  FakeVerbs fake;
  Lane lane(fake, adaptive(), adaptive());
  const uint32_t pair = fake.pairsOf(0)[0];
  fake.resetCounts();
  const std::vector<Work> works = {notify(lane.a, 0, kLarge, 11), notify(lane.a, kLarge, 2 * kLarge, 22),
                                   lane.a.work(Opcode::write, 3 * kLarge, 3 * kLarge, 2 * kLarge, 3),
                                   notify(lane.a, 0, 0, 33)};
  CHECK(lane.a.lane->post(works) == works.size());
  REQUIRE(lane.allSent(works.size()));
  REQUIRE(pumpUntil({&lane.b}, [&] { return lane.b.count(notified) == 3; }));
  const auto asked = fake.asked(pair);
  CHECK(asked.posts == 1);
  CHECK(asked.signalled == 1);
  CHECK(asked.requests == 1 + 3 + 1 + 3);  // one of nothing goes apart too
  CHECK(asked.notifications == 1 + 2 + 2);
  CHECK(asked.bytes == 5 * kLarge);
  const std::vector<Completion> arrived = of(lane.b, notified);
  CHECK(arrived[0].length == kLarge);
  CHECK(arrived[0].imm == 11);
  CHECK(arrived[1].length == 2 * kLarge);
  CHECK(arrived[1].imm == 22);
  CHECK(arrived[2].length == 0);
  CHECK(arrived[2].imm == 33);
  CHECK(lane.b.holds(0, lane.a, 0, 5 * kLarge));
}

TEST_CASE("notifications go apart only where both ends want it") {
  FakeVerbs fake;
  fake.infiniband = GENERATE(false, true);
  Config off;
  off.ibAdaptiveRouting = 0;
  const bool mine = GENERATE(false, true);
  Lane lane(fake, mine ? adaptive() : off, mine ? off : adaptive());
  fake.resetCounts();
  REQUIRE(lane.a.post(notify(lane.a, 0, 2 * kLarge, 11)));
  REQUIRE(lane.a.post(notify(lane.a, 0, 0, 22)));
  REQUIRE(lane.allSent(2));
  REQUIRE(pumpUntil({&lane.b}, [&] { return lane.b.count(notified) == 2; }));
  CHECK(fake.asked(fake.pairsOf(0)[0]).requests == 2);
  CHECK(of(lane.b, notified)[0].length == 2 * kLarge);
  CHECK(of(lane.b, notified)[1].imm == 22);
}

TEST_CASE("works that go apart fill a lane sooner, and each has one verdict") {
  FakeVerbs fake;
  Config config = adaptive();
  config.qpsPerConnection = GENERATE(1, 3);
  config.closeTimeout = Milliseconds(1);
  Lane lane(fake, config, config);
  fake.hold(true);
  const std::vector<Work> works(500, notify(lane.a, 0, 2 * kLarge, 11));
  const size_t taken = lane.a.lane->post(works);
  const size_t all = config.qpsPerConnection == 1 ? 126 / 3 : 126 / 3 + 2 * (62 / 3);
  CHECK(taken == all);
  CHECK(lane.a.lane->post(works) == 0);
  SECTION("all land") {
    fake.hold(false);
    REQUIRE(lane.allSent(taken));
    CHECK(lane.a.count(sent, true) == taken);
    CHECK(pumpUntil({&lane.b}, [&] { return lane.b.count(notified) == taken; }));
    CHECK(lane.a.lane->post(works) == taken);  // what ended makes room
  }
  SECTION("the lane is cut") {
    lane.a.lane->retire();
    REQUIRE(pumpUntil({&lane.a}, [&] { return lane.a.count(retired) == 1; }));
    CHECK(lane.a.count(sent, false) == taken);
  }
  SECTION("the data of one do not land") {
    const uint32_t pair = fake.pairsOf(0)[0];
    fake.failNext(pair);
    fake.release(pair);
    REQUIRE(pumpUntil({&lane.a}, [&] { return lane.a.count(sent, false) == 126 / 3; }));
    CHECK(contains(lane.a.words.front(), "did not acknowledge within all retries"));
    CHECK(lane.b.count(notified) == 0);
  }
}

TEST_CASE("unsignaled works that go apart give their slots back without a loud one") {
  FakeVerbs fake;
  Config config = adaptive();
  config.qpsPerConnection = GENERATE(1, 3);
  Lane lane(fake, config, config);
  Work work = notify(lane.a, 0, 2 * kLarge, 11);
  work.unsignaled = true;
  size_t posted = 0;
  const auto post = [&] { return posted += lane.a.lane->post({&work, 1}), posted >= 500; };
  CHECK(pumpUntil({&lane.a, &lane.b}, post));
  for (const uint32_t pair : fake.pairsOf(0)) CHECK(fake.asked(pair).requests >= 3 * 100);
}

TEST_CASE("a card that takes half of a work that goes apart ends its lane; whole ones stay") {
  FakeVerbs fake;
  Lane lane(fake, adaptive(), adaptive());
  const std::vector<Work> works(2, notify(lane.a, 0, 2 * kLarge, 11));
  fake.takesOnly = 3;
  CHECK(lane.a.lane->post(works) == 2);  // the second one with another ring of the doorbell
  REQUIRE(lane.allSent(2));
  CHECK(lane.a.count(sent, true) == 2);
  fake.takesOnly = 4;
  CHECK(lane.a.lane->post(works) == 2);  // the second counts as taken, and as failed
  CHECK_FALSE(lane.a.post(works[0]));
  lane.a.lane->retire();
  REQUIRE(pumpUntil({&lane.a}, [&] { return lane.a.count(retired) == 1; }));
  CHECK(lane.a.count(sent) == 4);
  CHECK(lane.a.count(sent, false) >= 1);
  CHECK(lane.b.count(notified) <= 3);
}

TEST_CASE("cards that offer the same extensions both set them, others connect without") {
  FakeVerbs fake;
  Config config = withPairs(2);
  uint32_t expected = 0;
  SECTION("the same") {
    fake.ece[0] = fake.ece[1] = {0x15b3, 0x30000003};
    expected = 0x30000003;
  }
  SECTION("different ones") {
    fake.ece[0] = {0x15b3, 0x30000003};
    fake.ece[1] = {0x15b3, 0x20000001};
  }
  SECTION("another vendor's") {
    fake.ece[0] = {0x15b3, 1};
    fake.ece[1] = {0x14e4, 1};
  }
  SECTION("only one has any") {
    fake.ece[0] = {0x15b3, 1};
  }
  SECTION("the library does not know of them") {
    fake.ece[0] = fake.ece[1] = {0x15b3, 1};
    fake.eceThere = false;
  }
  SECTION("turned off on one end") {
    fake.ece[0] = fake.ece[1] = {0x15b3, 1};
    config.ibEce = false;
  }
  Lane lane(fake, config, withPairs(2));
  for (const int card : {0, 1})
    for (const uint32_t pair : fake.pairsOf(card)) CHECK(fake.eceSet(pair).options == expected);
}

TEST_CASE("two ends of different MTU use the smaller one") {
  FakeVerbs fake;
  fake.mtus[0] = IBV_MTU_1024;
  const Lane lane(fake);
  CHECK(fake.connectedWith(fake.pairsOf(0)[0]).path_mtu == IBV_MTU_1024);
  CHECK(fake.connectedWith(fake.pairsOf(1)[0]).path_mtu == IBV_MTU_1024);
}

TEST_CASE("InfiniBand is routed by LID, with a global header between subnets and where a port asks for it") {
  FakeVerbs fake;
  fake.infiniband = true;
  std::string theirs = "fe80::2:c903:2";
  uint16_t lid = 0x22;
  bool global = false, mineAsks = false, theirsAsks = false;
  SECTION("one subnet") {}
  SECTION("two subnets") {
    theirs = "fec0::1:2:c903:2";
    global = true;
  }
  SECTION("a peer without a LID") {
    lid = 0;
    global = true;
  }
  SECTION("this port asks") {
    global = mineAsks = true;
  }
  SECTION("the peer's port asks") {
    global = theirsAsks = true;
  }
  fake.setReached(0, {"fe80::2:c903:1", 0x11, mineAsks});
  fake.setReached(1, {theirs, lid, theirsAsks});
  const Lane lane(fake);
  const ibv_ah_attr& to = fake.connectedWith(fake.pairsOf(0)[0]).ah_attr;
  CHECK(to.dlid == lid);
  CHECK(to.is_global == global);
  verbs::Gid expected{};
  if (global) verbs::parseGid(theirs, &expected);
  CHECK(std::equal(expected.begin(), expected.end(), to.grh.dgid.raw));
  CHECK(fake.connectedWith(fake.pairsOf(1)[0]).ah_attr.dlid == 0x11);
}

TEST_CASE("a lane is over when its LID is another one, and the next one announces that") {
  FakeVerbs fake;
  fake.infiniband = true;
  fake.setReached(0, {"fe80::2:c903:1", 0x11});
  fake.setReached(1, {"fe80::2:c903:2", 0x22});
  Lane lane(fake);
  fake.happens(0, IBV_EVENT_CLIENT_REREGISTER);  // nothing changed
  fake.setReached(0, {"fe80::2:c903:1", 0x33});
  fake.happens(0, IBV_EVENT_LID_CHANGE);
  REQUIRE(pumpUntil({&lane.a, &lane.b}, [&] { return lane.a.count(broken, false) == 1; }));
  REQUIRE(lane.a.words.size() == 1);
  CHECK(contains(lane.a.words[0], "its LID changed from 17 to 51"));
  CHECK(lane.b.count(broken, false) == 0);
  CHECK(announcedBy(lane.a).lid == 0x33);
}

TEST_CASE("a lane falters while its address is gone, and goes on when that is back") {
  FakeVerbs fake;
  const FakeVerbs::Reached first{"::ffff:192.0.2.1"};
  Lane lane(fake);
  fake.setReached(0, {"::ffff:192.0.2.77"});
  fake.happens(0, IBV_EVENT_GID_CHANGE);
  REQUIRE(pumpUntil({&lane.a, &lane.b}, [&] { return lane.a.count(faltering, false) == 1; }));
  CHECK(contains(lane.a.words[0], "its address 192.0.2.1 is gone"));
  CHECK(verbs::gidText(announcedBy(lane.a).gids[0]) == "192.0.2.77");
  REQUIRE(lane.a.post(lane.a.work(Opcode::write, 0, 0, kLarge)));
  CHECK(lane.allSent(1));
  FakeVerbs::Reached again = first;
  again.firstIndex = 5;  // the kernel gives it another place; it keeps the one that is in use
  fake.setReached(0, again);
  fake.happens(0, IBV_EVENT_GID_CHANGE);
  CHECK(pumpUntil({&lane.a, &lane.b}, [&] { return lane.a.count(faltering, true) == 1; }));
  CHECK(lane.a.count(broken) == 0);
}

TEST_CASE("the loss of an address that no peer uses is nothing to a lane") {
  FakeVerbs fake;
  fake.setReached(0, {"::ffff:192.0.2.1", 0, false, "fd99::1"});
  Lane lane(fake);
  const auto loopback = lane.a.queue->openEndpoint();
  REQUIRE(loopback);
  REQUIRE((*loopback)->connect((*loopback)->address()));
  REQUIRE(pumpUntil({&lane.a}, [&] { return lane.a.count(connected, true) == 2; }));
  fake.setReached(0, {"::ffff:192.0.2.1"});
  fake.happens(0, IBV_EVENT_GID_CHANGE);
  const auto read = [&]() -> bool { return announcedBy(lane.a).gids[1] == verbs::Gid{}; };
  REQUIRE(pumpUntil({&lane.a, &lane.b}, read));
  pump({&lane.a, &lane.b}, 50);
  CHECK(lane.a.count(broken) == 0);
  CHECK(lane.a.count(faltering) == 0);
}

TEST_CASE("a table of addresses that cannot be read says nothing about them") {
  FakeVerbs fake;
  Lane lane(fake);
  fake.readFails = 2;
  fake.happens(0, IBV_EVENT_GID_CHANGE);
  REQUIRE(pumpUntil({&lane.a, &lane.b}, [&] { return fake.readFails == 0; }));
  fake.readFails = 1;  // and one that can be read a moment later
  fake.setReached(0, {"::ffff:192.0.2.1", 0, false, "fd99::1"});
  fake.happens(0, IBV_EVENT_GID_CHANGE);
  const auto read = [&]() -> bool { return verbs::gidText(announcedBy(lane.a).gids[1]) == "fd99::1"; };
  CHECK(pumpUntil({&lane.a, &lane.b}, read));
  CHECK(lane.a.count(broken) == 0);
  CHECK(lane.a.count(faltering) == 0);
}

TEST_CASE("a flap of the port loses nothing: what was posted lands when it is up again") {
  FakeVerbs fake;
  Lane lane(fake, withPairs(2), withPairs(2));
  fake.hold(true);
  for (uint64_t i = 0; i < 8; i++)
    REQUIRE(lane.a.post(lane.a.work(Opcode::writeNotify, i * kLarge, i * kLarge, kLarge, i)));
  fake.happens(0, IBV_EVENT_PORT_ERR);
  REQUIRE(pumpUntil({&lane.a, &lane.b}, [&] { return lane.a.count(faltering, false) == 1; }));
  CHECK(contains(lane.a.words[0], "port 1 of fake0 went down"));
  CHECK(lane.a.first(faltering)->error == ENETDOWN);
  CHECK(lane.a.count(sent) == 0);
  SECTION("it comes back") {
    fake.happens(0, IBV_EVENT_PORT_ACTIVE);
    fake.hold(false);
    CHECK(lane.allSent(8));
    CHECK(lane.a.count(sent, true) == 8);
    CHECK(pumpUntil({&lane.a, &lane.b}, [&] { return lane.b.count(notified) == 8; }));
    CHECK(lane.b.holds(0, lane.a, 0, 8 * kLarge));
    CHECK(pumpUntil({&lane.a, &lane.b}, [&] { return lane.a.count(faltering, true) == 1; }));
  }
  SECTION("the card gives up") {
    for (const uint32_t pair : fake.pairsOf(0)) fake.failNext(pair);
    fake.hold(false);
    CHECK(lane.allSent(8));
    CHECK(lane.a.count(sent, false) == 8);
    CHECK(contains(lane.a.words.back(), "port 1 of fake0 went down"));
    CHECK(contains(lane.a.words.back(), "did not acknowledge within all retries"));
  }
  CHECK(lane.a.count(broken) == 0);
}

TEST_CASE("a lane that is made while the port is down says so once it stands") {
  FakeVerbs fake;
  const auto left = fake.transport({0}), right = fake.transport({1});
  SeamEnd a(*left, 64), b(*right, 64);
  fake.happens(0, IBV_EVENT_PORT_ERR);
  joinEnds(a, b);
  CHECK(pumpUntil({&a, &b}, [&] { return a.count(faltering, false) == 1; }));
}

TEST_CASE("an address that changes while the device is being opened is what its lanes announce") {
  FakeVerbs fake;
  std::atomic<int> looks = 0;
  fake.onAsking = [&] {
    if (looks++ > 0) return;
    fake.setReached(0, {"::ffff:192.0.2.77", 0});
    fake.happens(0, IBV_EVENT_GID_CHANGE);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (looks < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  const auto transport = fake.transport({0});
  SeamEnd end(*transport, 64);
  CHECK(pumpUntil({&end}, [&] { return verbs::gidText(announcedBy(end).gids[0]) == "192.0.2.77"; }));
}

TEST_CASE("a port that lost its last address works again when it has one") {
  FakeVerbs fake;
  Lane lane(fake);
  fake.setReached(0, {});
  fake.happens(0, IBV_EVENT_GID_CHANGE);
  REQUIRE(pumpUntil({&lane.a, &lane.b}, [&] { return lane.a.count(faltering, false) == 1; }));
  CHECK(contains(lane.a.words[0], "its address 192.0.2.1 is gone"));
  fake.setReached(0, {"::ffff:192.0.2.77", 0});
  fake.happens(0, IBV_EVENT_PORT_ACTIVE);
  const auto back = [&]() -> bool { return verbs::gidText(announcedBy(lane.a).gids[0]) == "192.0.2.77"; };
  CHECK(pumpUntil({&lane.a}, back));
}

TEST_CASE("a card that may not be opened is refused as failed, with what to do") {
  FakeVerbs fake;
  fake.openFails = EACCES;
  const auto refusals = refusalsOf(fake);
  CHECK(refusals.size() == 4);
  CHECK(refusals[0].failed);
  CHECK(refusals[0].what == "verbs fake0");
  CHECK(contains(refusals[0].why, "/dev/infiniband/uverbs*"));
  CHECK(contains(refusals[0].why, "CAP_IPC_LOCK"));
}

TEST_CASE("a card that may lock no memory is refused as failed, with the limit") {
  FakeVerbs fake;
  fake.registerFails = ENOMEM;
  const auto refusals = refusalsOf(fake);
  CHECK(refusals[0].failed);
  CHECK(contains(refusals[0].why, "the limit of locked memory (ulimit -l) is"));
}

TEST_CASE(
    "ports that are down, left out, of another kind or without an address are refused, and nothing failed") {
  FakeVerbs fake;
  Config config;
  std::string words = "no RoCE v2 address";  // as a virtual function whose interface is elsewhere
  SECTION("no address") {}
  SECTION("down") {
    fake.portState = IBV_PORT_DOWN;
    words = "the port is down: check its cable";
  }
  SECTION("iWARP") {
    fake.speaks = IBV_TRANSPORT_IWARP;
    words = "it speaks iWARP";
  }
  SECTION("filtered") {
    config.hca = "=mlx5_7";
    words = "WEFT_HCA";
  }
  const auto refusals = refusalsOf(fake, config);
  for (const Refusal& one : refusals) {
    CHECK_FALSE(one.failed);
    CHECK(contains(one.why, words));
  }
}

TEST_CASE("a card reads GPU memory itself: it never goes inline") {
  FakeVerbs fake;
  Lane lane(fake);
  MemoryDesc desc;
  desc.address = lane.a.bytes.data();
  desc.length = lane.a.bytes.size();
  desc.kind = MemoryKind::cuda;
  const auto memory = lane.a.device->registerMemory(desc);
  REQUIRE(memory);
  Work work = lane.a.work(Opcode::write, 0, 0, 32);
  REQUIRE(lane.a.post(work));
  REQUIRE(lane.allSent(1));
  const auto inlined = [&] {
    uint64_t sum = 0;
    for (const uint32_t pair : fake.pairsOf(0)) sum += fake.asked(pair).inlined;
    return sum;
  };
  CHECK(inlined() == 1);
  work.memory = memory->get();
  REQUIRE(lane.a.post(work));
  REQUIRE(lane.allSent(2));
  CHECK(inlined() == 1);
}

TEST_CASE("a trial shows what a driver does otherwise than most") {
  FakeVerbs fake;
  fake.tellsLength = GENERATE(true, false);
  fake.carriesEmpty = GENERATE(true, false);
  const auto habits = verbs::tryCard(fake.library(), fake.portOf(0), Clock::system());
  CHECK(habits.untried.empty());
  CHECK(habits.tellsLength == fake.tellsLength);
  CHECK(habits.carriesEmpty == fake.carriesEmpty);
  CHECK(fake.pairsOf(0).empty());  // nothing of it stays
  fake.openFails = EACCES;
  CHECK_FALSE(verbs::tryCard(fake.library(), fake.portOf(0), Clock::system()).untried.empty());
}

TEST_CASE("where a driver does not tell the length of a write, every notification goes apart and has it") {
  FakeVerbs fake;
  fake.tellsLength = false;
  fake.apart = verbs::Apart::always;
  Lane lane(fake);
  const size_t lengths[] = {0, 1, 64, kLarge, 4 * kLarge};
  for (const size_t length : lengths) REQUIRE(lane.a.post(notify(lane.a, 0, length, 7)));
  REQUIRE(lane.allSent(5));
  REQUIRE(pumpUntil({&lane.b}, [&] { return lane.b.count(notified) == 5; }));
  const auto arrived = of(lane.b, notified);
  for (size_t i = 0; i < 5; i++) {
    CHECK(arrived[i].length == lengths[i]);
    CHECK(arrived[i].imm == 7);
  }
}

TEST_CASE("relaxed ordering is for NCCL's buffers, and can be switched off") {
  FakeVerbs fake;
  Config config;
  config.ibRelaxedOrdering = GENERATE(0, 1, 2);
  const auto transport = fake.transport({0}, config);
  SeamEnd end(*transport, 4096);
  fake.relaxed = 0;
  MemoryDesc desc;
  desc.address = end.bytes.data();
  desc.length = 4096;
  CHECK(end.device->registerMemory(desc));
  CHECK(fake.relaxed == (config.ibRelaxedOrdering != 0));
  desc.strictOrder = true;  // the protocol's own
  CHECK(end.device->registerMemory(desc));
  CHECK(fake.relaxed == (config.ibRelaxedOrdering != 0));
}

TEST_CASE("the speed of a port follows from its width and that of a lane, up to 1.6 Tb/s") {
  CHECK(verbs::speedOf(2, 128) == 400'000);    // NDR, 4x
  CHECK(verbs::speedOf(2, 256) == 800'000);    // XDR, 4x
  CHECK(verbs::speedOf(4, 256) == 1'600'000);  // XDR, 8x
  CHECK(verbs::speedOf(16, 32) == 50'000);     // EDR, 2x
}
