// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>

#include "src/base/log.h"
#include "src/base/random.h"
#include "tests/protocol/kept_log.h"
#include "tests/protocol/rails.h"

// Rails die, one step at a time: an event, then what it must lead to.
using namespace weft;
using namespace weft::core;
using namespace weft::test;
using fault::FaultKind;
using fault::FaultOp;

TEST_CASE("a segment that was lost with its rail is asked for, and comes by the other") {
  const FaultKind kind =
      GENERATE(FaultKind::kill, FaultKind::killLate, FaultKind::killSilent, FaultKind::error);
  Rails rails(2);
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  fillPattern(from.data(), kLarge, 5);
  const auto fault = rails.breakRail(0, kind, FaultOp::writeNotify, 1);

  Request* receiving = rails.receive(to, kLarge);
  Request* sending = rails.post(from, kLarge);
  // Expect: both are done, every byte is right, and only the half that was lost went twice.
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(rails.finished(rails.send(), sending));
  CHECK(firstMismatch(to.data(), kLarge, 5) == kLarge);
  CHECK(fault->counts().hits == 1);
  CHECK(rails.counters(0).segmentsAgain == 1);
  CHECK(rails.counters(0).bytesAgain + kSegmentAlign > kLarge / 2);
  CHECK(rails.counters(0).bytesAgain < kLarge / 2 + kSegmentAlign);
  // Expect: the rail comes back under a new incarnation, on both sides.
  rails.live(100);
  for (int side = 0; side < 2; side++) {
    CHECK(rails.lanesUp(side) == 2);
    CHECK(rails.lane(side, 1).incarnation() == 2);
  }
}

TEST_CASE("a segment that landed before its rail died is not written again") {
  Rails rails(2);
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  fillPattern(from.data(), kLarge, 6);
  rails.breakRail(0, FaultKind::errorLanded, FaultOp::writeNotify, 0);
  Request* receiving = rails.receive(to, kLarge);
  Request* sending = rails.post(from, kLarge);
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(rails.finished(rails.send(), sending));
  CHECK(firstMismatch(to.data(), kLarge, 6) == kLarge);
  CHECK(rails.counters(0).lanesLeft == 1);
  CHECK(rails.counters(0).segmentsAgain == 0);
}

TEST_CASE("a notification that comes after its segment was asked for again is not counted") {
  Rails rails(2);
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  fillPattern(from.data(), kLarge, 7);
  // It lands and is said to have failed; the receiver hears of it only long after.
  rails.breakRail(0, FaultKind::errorLanded, FaultOp::writeNotify, 0);
  const auto delayed = rails.breakRail(1, FaultKind::delay, FaultOp::notified, 0, 60);
  Request* receiving = rails.receive(to, kLarge);
  Request* sending = rails.post(from, kLarge);
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(rails.finished(rails.send(), sending));
  CHECK(delayed->counts().hits == 1);
  CHECK(firstMismatch(to.data(), kLarge, 7) == kLarge);
  std::fill_n(to.data(), kLarge, std::byte{0xc5});
  std::fill_n(from.data(), kLarge, std::byte{0xee});
  rails.live(100);
  // Expect: nothing is written behind our back.
  CHECK(std::all_of(to.data(), to.data() + kLarge, [](std::byte b) { return b == std::byte{0xc5}; }));
  CHECK_FALSE(rails.recv().failed());
}

TEST_CASE("eager messages that were lost with their rail come by the other, each once") {
  const FaultKind kind = GENERATE(FaultKind::kill, FaultKind::killLate, FaultKind::killSilent);
  constexpr int kMessages = 40;
  constexpr size_t kBytes = 100;
  Rails rails(2);
  std::vector<std::unique_ptr<Buffer>> to;
  Buffer from(rails.send(), kBytes);
  const auto fault = rails.breakRail(0, kind, FaultOp::writeNotify, 0);
  for (int i = 0; i < kMessages; i++) {
    fillPattern(from.data(), kBytes, static_cast<uint64_t>(i));
    Request* sending = rails.post(from, kBytes);
    // Expect: done at once, whatever becomes of the rail.
    CHECK(rails.send().test(sending, nullptr).done);
  }
  for (int i = 0; i < kMessages; i++) {
    to.push_back(std::make_unique<Buffer>(rails.recv(), kBytes));
    CHECK(rails.finished(rails.recv(), rails.receive(*to.back(), kBytes)));
    CHECK(firstMismatch(to.back()->data(), kBytes, static_cast<uint64_t>(i)) == kBytes);
  }
  CHECK(fault->counts().hits == 1);
  CHECK(rails.counters(0).eagerAgain > 0);
  CHECK(rails.counters(1).duplicateNotes == 0);
}

TEST_CASE("of two credit lines the second waits until the first has landed") {
  constexpr size_t kBytes = 100;
  Rails rails(1);
  Buffer from(rails.send(), kBytes), to(rails.recv(), kBytes);
  fault::FaultRule late;
  late.kind = FaultKind::delay;
  late.op = FaultOp::write;  // the receiver writes nothing else, as every message is there before its receive
  late.count = 0;
  late.polls = 200;
  const auto fault = rails.addRule(1, late);
  for (uint32_t i = 0; i < kEagerSlotsPerPeering; i++) {
    CHECK(rails.finished(rails.send(), rails.post(from, kBytes)));
    rails.live(1);
    CHECK(rails.finished(rails.recv(), rails.receive(to, kBytes)));
  }
  // Expect: half of the slots were told; the other half follows, and both halves arrive.
  CHECK(fault->counts().hits == 1);
  rails.live(300);
  CHECK(fault->counts().hits == 2);
  rails.live(300);
  for (uint32_t i = 0; i < kEagerSlotsPerPeering; i++)
    CHECK(rails.send().test(rails.post(from, kBytes), nullptr).done);
}

TEST_CASE("CTS that were lost with their rail are told again") {
  const FaultKind kind = GENERATE(FaultKind::kill, FaultKind::killSilent);
  constexpr size_t kBytes = 20'000;
  constexpr int kMessages = 6;
  Rails rails(2);
  std::vector<std::unique_ptr<Buffer>> from, to;
  std::vector<Request*> receiving;
  const auto fault = rails.breakRail(1, kind, FaultOp::write, 0);  // the receiver's CTS are its only writes
  for (int i = 0; i < kMessages; i++) {
    to.push_back(std::make_unique<Buffer>(rails.recv(), kBytes));
    receiving.push_back(rails.receive(*to.back(), kBytes, i % 2));
  }
  for (int i = 0; i < kMessages; i++) {
    from.push_back(std::make_unique<Buffer>(rails.send(), kBytes));
    fillPattern(from.back()->data(), kBytes, static_cast<uint64_t>(i));
    CHECK(rails.finished(rails.send(), rails.post(*from.back(), kBytes, i % 2)));
  }
  for (size_t i = 0; i < kMessages; i++) {
    CHECK(rails.finished(rails.recv(), receiving[i]));
    CHECK(firstMismatch(to[i]->data(), kBytes, i) == kBytes);
  }
  CHECK(fault->counts().hits == 1);
  CHECK(rails.counters(1).ctsAgain > 0);
}

TEST_CASE("a CTS that is told again after it was read takes no later one's place") {
  constexpr size_t kBytes = 20'000;
  Rails rails(2);
  Buffer from(rails.send(), kBytes), to(rails.recv(), kBytes);
  CtsMessage again{rails.send().number(), {{.position = 1, .cts = {}}}};
  Request* receiving = rails.receive(to, kBytes);
  rails.live(1);
  std::memcpy(&again.cts[0].cts, rails.send().ring().data(), sizeof(Cts));
  CHECK(rails.finished(rails.send(), rails.post(from, kBytes)));
  CHECK(rails.finished(rails.recv(), receiving));

  receiving = rails.receive(to, kBytes);
  rails.live(1);
  {
    EngineEntry in(*rails.world().side(1).engine, EngineEntry::wait);
    rails.recv().peering().tell(MessageType::ctsAgain, again);
  }
  rails.world().deliverMessages();
  CHECK(rails.finished(rails.send(), rails.post(from, kBytes)));
  CHECK(rails.finished(rails.recv(), receiving));
}

TEST_CASE("when no rail is left the error names the peer, every rail and what each died of") {
  Rails rails(2);
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  rails.breakRail(0, FaultKind::error, FaultOp::writeNotify, 0);
  rails.breakRail(0, FaultKind::kill, FaultOp::writeNotify, 1);
  (void)rails.receive(to, kLarge);
  Request* sending = rails.post(from, kLarge);
  for (int i = 0; i < 1000 && !rails.recv().failed(); i++) {
    (void)rails.send().testRequest(sending, nullptr);
    rails.live(1);
  }
  REQUIRE(rails.send().failed());
  REQUIRE(rails.recv().failed());
  for (const char* part : {"node1 pid 1001", "rail loop0: ", "rail loop1: ", "fault injector"})
    CHECK(rails.send().stickyError().message().find(part) != std::string::npos);
  CHECK(rails.recv().stickyError().message().find("rail loop") != std::string::npos);
}

TEST_CASE("a silent rail is left within its bound, a silent peer is not blamed") {
  Rails rails(2);
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  rails.breakRail(0, FaultKind::killSilent, FaultOp::writeNotify, 1);
  (void)rails.receive(to, kLarge);
  (void)rails.post(from, kLarge);
  SECTION("the peer answers") {
    int waited = 0;
    for (; waited < 1000 && rails.lane(0, 1).up(); waited++) rails.live(1);
    CHECK(waited >= 80 - 1);
    CHECK(waited <= 80 * 5 / 4);
    CHECK(rails.lane(0, 0).up());
  }
  SECTION("its process does not") {
    rails.world().side(0).other->answering = false;
    rails.live(2000);
    CHECK(rails.lane(0, 1).up());
  }
  SECTION("its engine does not poll") {
    for (int i = 0; i < 390; i++) {
      rails.world().clock().advance(Milliseconds(1));
      rails.world().watch(0);
    }
    CHECK(rails.lanesUp(0) == 2);  // neither, as nothing moves on the good one either
  }
}

TEST_CASE("while a rail is being left a silent peer has all the time it wants") {
  Rails rails(2);
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  fillPattern(from.data(), kLarge, 6);
  rails.breakRail(0, FaultKind::kill, FaultOp::writeNotify, 1);
  Request* receiving = rails.receive(to, kLarge);
  Request* sending = rails.post(from, kLarge);
  rails.world().side(0).other->answering = false;
  for (int i = 0; i < 2000; i++) {
    rails.world().clock().advance(Milliseconds(1));
    rails.world().watch(0);
  }
  CHECK(rails.lane(0, 1).state() == LaneState::fenced);
  CHECK_FALSE(rails.send().failed());
  // Event: it was only stopped. Expect: all goes on.
  rails.world().side(0).other->answering = true;
  CHECK(rails.finished(rails.send(), sending));
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(firstMismatch(to.data(), kLarge, 6) == kLarge);
}

TEST_CASE("a message on a rail that is silent at its sender is no loss to its receiver") {
  Rails rails(1);
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  rails.breakRail(0, FaultKind::killSilent, FaultOp::writeNotify, 0);
  (void)rails.receive(to, kLarge);
  (void)rails.post(from, kLarge);
  for (int i = 0; i < 2000; i++) {
    rails.world().clock().advance(Milliseconds(1));
    rails.world().watch(1);
    rails.world().pump();
  }
  CHECK_FALSE(rails.recv().failed());
  // Expect: whoever wrote it watches the rail, and says which one it was.
  rails.live(1000);
  CHECK(rails.recv().failed());
  CHECK(rails.recv().stickyError().message().find("nothing moved for") != std::string::npos);
  // Large packets that vanish where small ones pass are no dead rail, but a switch with a smaller MTU.
  CHECK(rails.recv().stickyError().message().find("as large as the card's MTU") != std::string::npos);
}

TEST_CASE("one rail dies after the other, as long as one is left") {
  constexpr size_t kBytes = 150'000;
  const bool targetMustKnow = GENERATE(false, true);
  Rails rails(3, {.targetMustKnow = targetMustKnow});
  uint64_t hits = 0;
  Buffer from(rails.send(), kBytes), to(rails.recv(), kBytes);
  for (int round = 0; round < 12; round++) {
    fillPattern(from.data(), kBytes, static_cast<uint64_t>(round));
    const auto first = rails.breakRail(0, FaultKind::kill, FaultOp::writeNotify, round % 3);
    const auto second = rails.breakRail(0, FaultKind::killLate, FaultOp::writeNotify, (round + 1) % 3);
    Request* receiving = rails.receive(to, kBytes);
    Request* sending = rails.post(from, kBytes);
    CHECK(rails.finished(rails.recv(), receiving));
    CHECK(rails.finished(rails.send(), sending));
    CHECK(firstMismatch(to.data(), kBytes, static_cast<uint64_t>(round)) == kBytes);
    rails.heal();
    for (int i = 0; i < 60'000 && (rails.lanesUp(0) < 3 || rails.lanesUp(1) < 3); i++) rails.live(1);
    CHECK(rails.lanesUp(0) == 3);
    hits += first->counts().hits + second->counts().hits;
  }
  // Expect: no lane died of anything else, such as writing to a card before that knew it.
  CHECK(hits >= 12);
  CHECK(rails.counters(0).lanesLeft == hits);
}

TEST_CASE("memory can be given back while a rail is being left") {
  Rails rails(2);
  Buffer from(rails.send(), kLarge);
  Buffer to(rails.recv(), kLarge);
  rails.breakRail(0, FaultKind::kill, FaultOp::writeNotify, 1);
  (void)rails.receive(to, kLarge);
  (void)rails.post(from, kLarge);
  // Messages travel only between calls here, so the peer seems not to agree in time, and the lanes are cut.
  to.release();
  std::fill_n(to.data(), kLarge, std::byte{0xc5});
  rails.live(200);
  // Expect: nothing lands any more.
  CHECK(std::all_of(to.data(), to.data() + kLarge, [](std::byte b) { return b == std::byte{0xc5}; }));
}

TEST_CASE("a send that its fabric does not finish is cut off before its memory goes") {
  Rails rails(1);
  const Connection beside = rails.world().connect(0);
  std::vector<std::byte> from(kLarge);
  MemoryDesc desc;
  desc.address = from.data();
  desc.length = from.size();
  auto handle = rails.send().addHandle(desc, PeerAccess::none);
  REQUIRE(handle);
  Buffer to(rails.recv(), kLarge);
  rails.breakRail(0, FaultKind::delay, FaultOp::writeNotify, 0, 1'000'000'000);
  (void)rails.receive(to, kLarge);
  rails.live(5);
  REQUIRE(rails.send().isend(from.data(), kLarge, 1, *handle, nullptr).request);
  Peering& peering = beside.send->peering();
  // Event: NCCL closes the comm without deregistering. Expect: it returns when nothing can land any more.
  rails.closeSender();
  REQUIRE(peering.ending());
  CHECK(peering.lanes().isFenced());
}

TEST_CASE("talk about lanes that cannot be changes nothing") {
  Rails rails(2);
  SeededRandom random(9);
  const auto tell = [&](MessageType type, const auto& body) {
    EngineEntry in(*rails.world().side(0).engine, EngineEntry::wait);
    rails.send().peering().tell(type, body);
  };
  for (int i = 0; i < 3000; i++) {
    const auto lane = static_cast<uint8_t>(2 + random.below(250));
    const auto other = static_cast<uint32_t>(3 + random.below(100));  // neither this incarnation nor the next
    tell(MessageType::laneRetire, LaneMessage{lane, 1, "x", {}});
    tell(MessageType::laneRetire, LaneMessage{1, other, "x", {}});
    tell(MessageType::laneRetired, RetiredMessage{lane, 1, false, {}});
    tell(MessageType::laneRetired, RetiredMessage{0, other, false, {{other, other, 1}}});
    tell(MessageType::missing, MissingMessage{0, 1, static_cast<uint32_t>(random.below(3)), {1, 2, 3}});
    tell(MessageType::laneAddress, LaneMessage{static_cast<uint8_t>(random.below(2)), other, {}, Bytes(12)});
    tell(MessageType::laneAddress, LaneMessage{0, 1, {}, Bytes(12)});
    tell(MessageType::tellPolled, CommMessage{0, random.next()});
    tell(MessageType::ctsAgain,
         CtsMessage{rails.send().remoteNumber(), {{static_cast<uint16_t>(random.next()), {}}}});
    rails.live(1);
  }
  Buffer from(rails.send(), kLarge), to(rails.recv(), kLarge);
  fillPattern(from.data(), kLarge, 4);
  Request* receiving = rails.receive(to, kLarge);
  CHECK(rails.finished(rails.send(), rails.post(from, kLarge)));
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(firstMismatch(to.data(), kLarge, 4) == kLarge);
  CHECK(rails.counters(0).lanesLeft == 0);
  CHECK(rails.counters(1).lanesLeft == 0);
}

TEST_CASE("what a peer says it lost must be what it was let write") {
  Rails rails(2);
  Buffer to(rails.recv(), kLarge);
  Request* receiving = rails.receive(to, kLarge);
  rails.live(5);
  {
    EngineEntry in(*rails.world().side(0).engine, EngineEntry::wait);
    Peering& peering = rails.send().peering();
    RetiredMessage retired{0, 1, false, {}};
    for (uint32_t i = 0; i < 3000; i++) retired.suspects.push_back({i % 5, i * 7919, 0xffff});
    peering.tell(MessageType::laneRetire, LaneMessage{0, 1, "as I please", {}});
    peering.tell(MessageType::laneRetired, retired);
  }
  rails.live(100);
  // Expect: nothing of it concerns the receive that is open, and the other lane serves it.
  Buffer from(rails.send(), kLarge);
  fillPattern(from.data(), kLarge, 8);
  CHECK(rails.finished(rails.send(), rails.post(from, kLarge)));
  CHECK(rails.finished(rails.recv(), receiving));
  CHECK(firstMismatch(to.data(), kLarge, 8) == kLarge);
}

TEST_CASE("at its end a peering tells what each rail carried, and what was another's") {
  const bool dies = GENERATE(false, true);
  auto rails = std::make_unique<Rails>(2);
  if (dies) rails->breakRail(0, FaultKind::kill, FaultOp::writeNotify, 1);
  {
    Buffer from(rails->send(), kLarge), to(rails->recv(), kLarge);
    Request* receiving = rails->receive(to, kLarge);
    Request* sending = rails->post(from, kLarge);
    REQUIRE(rails->finished(rails->recv(), receiving));
    REQUIRE(rails->finished(rails->send(), sending));
    rails->live(100);
  }
  const Lane& first = rails->lane(0, 0);
  CHECK(first.totals().bytes >= kLarge / 2 - kSegmentAlign);
  CHECK(first.totals().worksAgain == (dies ? 1 : 0));
  const std::string told =
      format("over loop0: %llu writes, %llu bytes", static_cast<unsigned long long>(first.totals().works),
             static_cast<unsigned long long>(first.totals().bytes));
  const KeptLog log;
  rails.reset();
  INFO(log.text());
  CHECK(log.text().find(told) != std::string::npos);
  CHECK((log.text().find(", 1 again") != std::string::npos) == dies);
  CHECK((log.text().find("revived 1 times") != std::string::npos) == dies);
}

namespace {

// Two sides of two rails each, on a fabric whose lanes stand only once both ends know of each other.
struct Unconnected {
  Unconnected() : world(options()) { setLogSink(silent); }
  ~Unconnected() { setLogSink(nullptr); }
  WorldOptions options() {
    WorldOptions options;
    options.config.laneTimeout = Milliseconds(400);
    for (int i = 0; i < 2; i++) {
      loop::LoopOptions fabric;
      fabric.rails = options.rails[i] = 2;
      fabric.targetMustKnow = true;
      auto wrapped = fault::makeTransport(loop::makeTransport(fabric));
      controls[i] = wrapped->control();
      options.transports[i] = std::move(wrapped);
    }
    return options;
  }
  void connectOnce() {
    auto stepped = world.side(0).net->connect(world.side(0).context, world.side(0).device, handle);
    REQUIRE(stepped);
    if (*stepped) send = std::move(*stepped);
  }
  void acceptOnce() {
    auto stepped = world.side(1).net->accept(*listener);
    REQUIRE(stepped);
    if (*stepped) recv = std::move(*stepped);
  }

  std::shared_ptr<fault::FaultControl> controls[2];
  World world;
  std::array<std::byte, control::kHandleBytes> handle{};
  std::unique_ptr<ListenComm> listener;
  std::unique_ptr<SendComm> send;
  std::unique_ptr<RecvComm> recv;
};

}  // namespace

TEST_CASE("a rail that is lost before the peer has looked at our half is accounted for all the same") {
  Unconnected ends;
  World& world = ends.world;
  auto listening = world.side(1).net->listen(world.side(1).context, world.side(1).device, ends.handle);
  REQUIRE(listening);
  ends.listener = std::move(*listening);
  ends.connectOnce();
  ends.acceptOnce();  // its half is on its way to the connector, who does not look yet
  fault::FaultRule rule;
  rule.kind = FaultKind::kill;
  rule.op = FaultOp::poll;
  rule.rail = 1;
  const auto lost = ends.controls[1]->add(rule);
  for (int i = 0; i < 4; i++) world.pump();
  REQUIRE(lost->counts().hits == 1);
  for (int i = 0; i < 2000 && !(ends.send && ends.recv); i++) {
    if (!ends.send) ends.connectOnce();
    if (!ends.recv) ends.acceptOnce();
    world.clock().advance(Milliseconds(1));
    world.watch(0), world.watch(1);
    world.pump();
  }
  // Expect: both ends are connected, the rail comes back, and nothing ends however long it takes.
  REQUIRE(ends.send);
  REQUIRE(ends.recv);
  for (int i = 0; i < 4000; i++) {
    world.clock().advance(Milliseconds(1));
    world.watch(0), world.watch(1);
    world.pump();
  }
  const auto& sender = static_cast<const SendCommImpl&>(*ends.send);
  const auto& receiver = static_cast<const RecvCommImpl&>(*ends.recv);
  CHECK_FALSE(sender.failed());
  CHECK_FALSE(receiver.failed());
  CHECK(sender.peering().lanesUp() == 2);
  CHECK(receiver.peering().lanesUp() == 2);
}
