// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <vector>

#include "src/base/log.h"
#include "src/base/random.h"
#include "src/core/posting.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// A peer that proved itself and then does not keep to the protocol: replayed and invented notifications,
// records that do not fit, messages that no one asked for. Each ends in one error on the comm it concerns, or
// is counted and dropped; the other connection of the same peer goes on, byte for byte.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

void silent(LogLevel, const char*, int, const char*) {}  // errors are what is provoked

// Side 0 sends to side 1 on both connections; side 0 is the hostile one unless said otherwise.
struct Scene {
  Scene() : link(world.connect(0)), other(world.connect(0)) {
    setLogSink(silent);
    REQUIRE(link.send->peering().eagerOut().hasSlot());  // takes the staging
  }
  ~Scene() { setLogSink(nullptr); }

  static WorldOptions options() {
    WorldOptions options;
    options.config.laneTimeout = Milliseconds(40);
    return options;
  }

  Engine& sender() { return *world.side(0).engine; }
  Engine& receiver() { return *world.side(1).engine; }

  Request* receive(Connection& on, Buffer& into, size_t bytes, int tag) {
    const ReceiveSpec spec{into.data(), bytes, tag, into.handle(), nullptr};
    const Posted posted = on.recv->irecv(std::span(&spec, 1));
    REQUIRE(posted.request);
    return posted.request;
  }

  // One message of each size, verified: the connection works.
  void prove(Connection& on) {
    for (const size_t bytes : {size_t{0}, size_t{100}, size_t{50'000}}) {
      Buffer from(*on.send, bytes + 1), to(*on.recv, bytes + 1);
      fillPattern(from.data(), bytes, bytes);
      Request* receiving = receive(on, to, bytes, 77);
      Request* sending = nullptr;
      bool sent = false, received = false;
      for (int i = 0; i < 2000 && !(sent && received); i++) {
        if (!sending) sending = on.send->isend(from.data(), bytes, 77, from.handle(), nullptr).request;
        if (sending && !sent) sent = on.send->test(sending, nullptr).done;
        if (!received) received = on.recv->test(receiving, nullptr).done;
        world.pump();
      }
      REQUIRE(received);
      CHECK(firstMismatch(to.data(), bytes, bytes) == bytes);
    }
  }

  // A write of ours into the receiver's eager pool, or into nothing, with any notification.
  void notify(const Note& note, size_t bytes) {
    EngineEntry in(sender(), EngineEntry::wait);
    Peering& peering = link.send->peering();
    Work work;
    work.op = Opcode::writeNotify;
    work.imm = note.encode();
    work.local = peering.eagerOut().staging(0);
    work.length = bytes;
    work.memory = peering.staging().region()->rail(0);
    work.remote = peering.landing(peering.lane(0));
    work.remoteOffset = peering.half().eagerOffset;
    work.context = workContext(WorkKind::unsignaled, 0, peering.number(), 0);
    peering.submit(peering.lane(0), work);
    sender().flush();
  }

  template <class Body>
  void tell(int from, MessageType type, const Body& body) {
    CommBase& comm = from == 0 ? static_cast<CommBase&>(*link.send) : *link.recv;
    EngineEntry in(*world.side(from).engine, EngineEntry::wait);
    comm.peering().tell(type, body);
  }

  World world{options()};
  Connection link;
  Connection other;
};

// A fault between sender and receiver is not hostile enough: this one repeats what arrived, again and again.
constexpr int kReplays = 200;

}  // namespace

TEST_CASE("an eager message whose notification comes again and again is one message") {
  Scene scene;
  Buffer from(*scene.link.send, 100), to(*scene.link.recv, 100);
  fillPattern(from.data(), 100, 1);
  REQUIRE(scene.link.send->isend(from.data(), 100, 3, from.handle(), nullptr).request);
  scene.world.pump();
  Note note;
  note.kind = NoteKind::eager;
  for (int i = 0; i < kReplays; i++) scene.notify(note, 132), scene.world.pump();
  // Expect: the first is kept, the others are counted.
  CHECK(scene.receiver().counters().duplicateNotes + scene.receiver().counters().foreignNotes >= kReplays);
  int size = -1;
  Request* receiving = scene.receive(scene.link, to, 100, 3);
  CHECK(scene.link.recv->test(receiving, &size).done);
  CHECK(size == 100);
  CHECK(firstMismatch(to.data(), 100, 1) == 100);
  // Replayed after it was taken: nothing is in the slot any more.
  for (int i = 0; i < kReplays; i++) scene.notify(note, 132), scene.world.pump();
  Request* second = scene.receive(scene.link, to, 100, 3);
  scene.world.pump(10);
  CHECK_FALSE(scene.link.recv->test(second, nullptr).done);
  fillPattern(from.data(), 100, 2);
  REQUIRE(scene.link.send->isend(from.data(), 100, 3, from.handle(), nullptr).request);
  bool done = false;
  for (int i = 0; i < 200 && !done; i++) scene.world.pump(), done = scene.link.recv->test(second, &size).done;
  CHECK(done);
  CHECK(firstMismatch(to.data(), 100, 2) == 100);
  scene.prove(scene.other);
}

TEST_CASE(
    "an eager write that lands again after its slot was returned takes nothing from the slot's next "
    "message") {
  Scene scene;
  Buffer from(*scene.link.send, 100), to(*scene.link.recv, 100);
  Note note;
  note.kind = NoteKind::eager;
  // Expect: slot 0 is used many times over, and each use carries its message.
  constexpr uint64_t kMessages = 3 * kEagerSlotsPerPeering;
  for (uint64_t i = 0; i < kMessages; i++) {
    Request* receiving = scene.receive(scene.link, to, 100, 3);
    fillPattern(from.data(), 100, i);
    REQUIRE(scene.link.send->isend(from.data(), 100, 3, from.handle(), nullptr).request);
    bool done = false;
    for (int pass = 0; pass < 200 && !done; pass++)
      scene.world.pump(), done = scene.link.recv->test(receiving, nullptr).done;
    REQUIRE(done);
    REQUIRE(firstMismatch(to.data(), 100, i) == 100);
    scene.notify(note, 132);
    scene.world.pump();
  }
  CHECK(scene.receiver().counters().duplicateNotes >= kMessages);
  scene.prove(scene.other);
}

TEST_CASE("an eager message that says it is larger than its slot is not believed") {
  constexpr size_t kBytes = 20'000;  // the write is as long, over the slots behind it
  Scene scene;
  Buffer to(*scene.link.recv, kBytes);
  Request* receiving = scene.receive(scene.link, to, kBytes, 3);
  scene.world.pump(4);
  EagerHeader header;
  header.comm = scene.link.recv->number();
  header.tag = 3;
  header.size = kBytes;
  writeHeader(scene.link.send->peering().eagerOut().staging(0), header);
  Note note;
  note.kind = NoteKind::eager;
  scene.notify(note, sizeof header + kBytes);
  scene.world.pump(4);
  CHECK(scene.receiver().counters().foreignNotes == 1);
  CHECK_FALSE(scene.link.recv->test(receiving, nullptr).done);
  scene.prove(scene.other);
}

TEST_CASE("a slot that holds a message takes no other one") {
  Scene scene;
  Note note;
  note.kind = NoteKind::eager;
  EagerHeader header;
  header.comm = scene.link.recv->number();
  header.tag = 3;
  header.size = 8;
  for (header.use = 0; header.use < 200; header.use++, header.k++) {
    writeHeader(scene.link.send->peering().eagerOut().staging(0), header);
    scene.notify(note, sizeof header + 8);
    scene.world.pump(2);
  }
  // Expect: the first waits for its receive, and the others are nothing.
  CHECK(scene.receiver().counters().duplicateNotes == 199);
}

TEST_CASE("messages too large for their receives cost the peer's other connections no slots") {
  Scene scene;
  for (uint32_t i = 0; i < 2 * kEagerSlotsPerPeering; i++) {
    Connection link = scene.world.connect(0);
    Buffer from(*link.send, 100), to(*link.recv, 20);
    (void)scene.receive(link, to, 20, 1);
    (void)link.send->isend(from.data(), 100, 1, from.handle(), nullptr);
    scene.world.pump(4);
    CHECK(link.recv->failed());
  }
  const uint64_t before = scene.receiver().counters().eagerIn;
  scene.prove(scene.other);
  CHECK(scene.receiver().counters().eagerIn >= before + 2);
}

TEST_CASE("a message too large for its receive has arrived, and closing cuts no lane for it") {
  Scene scene;
  Buffer small(*scene.link.send, 100), to(*scene.link.recv, 20), later(*scene.link.recv, 50'000);
  (void)scene.receive(scene.link, later, 50'000, 2);
  (void)scene.receive(scene.link, to, 20, 1);
  scene.world.pump(4);
  (void)scene.link.send->isend(small.data(), 100, 1, small.handle(), nullptr);
  scene.world.pump(4);
  CHECK(scene.link.recv->failed());
  // Event: it closes with a receive open. What the sender answers to that is here already, as no messages
  // travel meanwhile.
  scene.tell(0, MessageType::total, CommMessage{scene.link.recv->number(), 1});
  scene.world.deliverMessages();
  later.release();
  CHECK(scene.other.recv->peering().ending() == nullptr);
  scene.prove(scene.other);
}

TEST_CASE("notifications that no one awaits are counted and dropped") {
  Scene scene;
  Buffer to(*scene.link.recv, 50'000);
  Request* receiving = scene.receive(scene.link, to, 50'000, 1);
  scene.world.pump(4);
  SeededRandom random(5);
  for (int i = 0; i < 3000; i++) {
    Note note;
    note.kind = random.below(2) ? NoteKind::eager : NoteKind::segment;
    note.slot = static_cast<uint32_t>(random.below(kMaxSlots));
    note.segments = 1 + static_cast<uint32_t>(random.below(kMaxSegments));
    note.segment = static_cast<uint32_t>(random.below(note.segments));
    note.generation = static_cast<uint32_t>(random.below(kGenerations));
    if (note.kind == NoteKind::segment && note.slot == 0) continue;  // the slot of the receive above
    scene.notify(note, random.below(64));
    scene.world.pump();
  }
  const EngineCounters& counters = scene.receiver().counters();
  CHECK(counters.staleNotes + counters.foreignNotes + counters.duplicateNotes > 2000);
  CHECK_FALSE(scene.link.recv->test(receiving, nullptr).done);
  CHECK_FALSE(scene.link.recv->failed());
  scene.prove(scene.other);
}

// A lane of somebody else to the receiver's engine: whoever is there may guess the numbers of this
// connection.
TEST_CASE("notifications that come in through another peer's lane complete nothing") {
  Scene scene;
  auto theirs = std::move(*scene.sender().queue(0).openEndpoint());
  auto ours = std::move(*scene.receiver().queue(0).openEndpoint());
  REQUIRE(theirs->connect(ours->address()));
  REQUIRE(ours->connect(theirs->address()));
  Buffer to(*scene.link.recv, 50'000);
  Request* receiving = scene.receive(scene.link, to, 50'000, 1);
  scene.world.pump(4);
  const auto notify = [&](NoteKind kind, uint32_t slot, uint32_t generation) {
    Note note;
    note.kind = kind;
    note.slot = slot;
    note.generation = generation;
    Work work;
    work.op = Opcode::writeNotify;
    work.unsignaled = true;
    work.imm = note.encode();
    EngineEntry in(scene.sender(), EngineEntry::wait);
    REQUIRE(theirs->post({&work, 1}) == 1);
  };
  for (uint32_t slot = 0; slot < 4; slot++) {
    for (uint32_t generation = 0; generation < kGenerations; generation++)
      notify(NoteKind::segment, slot, generation);
    notify(NoteKind::eager, slot, 0);
    scene.world.pump(2);
  }
  // Expect: the one that fits the receive, and those of the eager pool, are counted as nothing of ours.
  CHECK(scene.receiver().counters().foreignNotes == 5);
  CHECK_FALSE(scene.link.recv->test(receiving, nullptr).done);
  CHECK_FALSE(scene.link.recv->failed());
  scene.prove(scene.other);
}

TEST_CASE("a segment that does not fit its receive fails that comm alone") {
  Scene scene;
  Buffer to(*scene.link.recv, 20'000);
  (void)scene.receive(scene.link, to, 20, 1);
  Buffer large(*scene.link.recv, 20'000);
  (void)scene.receive(scene.link, large, 20'000, 2);
  scene.world.pump(4);
  // Whichever slot the small receive has, its first segment claims more than its room.
  for (uint32_t slot = 0; slot < 4; slot++) {
    Note note;
    note.slot = slot;
    note.segments = 2;
    scene.notify(note, 4000);
  }
  scene.world.pump(4);
  CHECK(scene.link.recv->failed());
  CHECK(scene.link.recv->stickyError().message().find("into a receive of 20") != std::string::npos);
  CHECK(scene.link.send->failed());  // told by the receiver
  CHECK_FALSE(scene.other.recv->failed());
  scene.prove(scene.other);
}

TEST_CASE("CTS that lead nowhere fail the sender's comm alone") {
  const uint32_t foreignMemory = 4711;
  Scene scene;
  Buffer from(*scene.link.send, 50'000);
  Cts cts;
  cts.comm = scene.link.send->number();
  cts.size = 50'000;
  cts.memory = foreignMemory;
  cts.next = 1;
  cts.tag = 1;
  const auto put = [&](const Cts& what) { std::memcpy(scene.link.send->ring().data(), &what, sizeof what); };
  SECTION("a CTS with a wrong checksum, comm, sequence or position is not believed") {
    for (int kind = 0; kind < 4; kind++) {
      Cts bad = cts;
      if (kind == 1) bad.comm++;
      if (kind == 2) bad.sequence = 9;
      if (kind == 3) bad.next = kRingPositions;
      if (kind != 0) seal(&bad);
      put(bad);
      const Posted posted = scene.link.send->isend(from.data(), 50'000, 1, from.handle(), nullptr);
      CHECK(posted.ok);
      CHECK_FALSE(posted.request);
    }
    CHECK_FALSE(scene.link.send->failed());
  }
  SECTION("memory that was never announced") {
    seal(&cts);
    put(cts);
    CHECK_FALSE(scene.link.send->isend(from.data(), 50'000, 1, from.handle(), nullptr).ok);
    CHECK(scene.link.send->stickyError().message().find("never announced") != std::string::npos);
  }
  SECTION("less room than the message needs") {
    cts.size = 10;
    seal(&cts);
    put(cts);
    CHECK_FALSE(scene.link.send->isend(from.data(), 50'000, 1, from.handle(), nullptr).ok);
    CHECK(scene.link.send->failed());
  }
  SECTION("a chain that returns to a CTS in use") {
    cts.next = 0;
    cts.k = 5;
    for (uint32_t sequence = 0; sequence < 1000; sequence++) {
      cts.sequence = sequence;
      seal(&cts);
      put(cts);
      const Posted posted = scene.link.send->isend(from.data(), 50'000, 1, from.handle(), nullptr);
      CHECK(posted.ok);
      CHECK_FALSE(posted.request);
    }
  }
  scene.world.pump(4);
  CHECK_FALSE(scene.other.send->failed());
  scene.prove(scene.other);
}

TEST_CASE("messages about what is not there are dropped") {
  Scene scene;
  SeededRandom random(6);
  for (int i = 0; i < 2000; i++) {
    ProbeMessage probe;
    probe.comm = random.below(2) ? scene.link.recv->number() : static_cast<uint32_t>(random.next());
    probe.slot = static_cast<uint32_t>(random.next());
    probe.tag = static_cast<uint32_t>(random.below(3));
    probe.state = static_cast<ProbeState>(random.below(256));
    scene.tell(0, random.below(2) ? MessageType::probed : MessageType::probe, probe);
    const CommMessage plain{random.below(2) ? scene.link.recv->number() : 99, random.next()};
    scene.tell(0, MessageType::tellRead, plain);
    scene.tell(0, MessageType::announced, plain);
    scene.tell(0, MessageType::withdraw, plain);
    scene.tell(0, MessageType::laneConnected, LaneMessage{static_cast<uint8_t>(random.below(4)), 1, {}, {}});
    scene.tell(0, static_cast<MessageType>(200), plain);
    scene.world.deliverMessages();
  }
  CHECK_FALSE(scene.link.recv->failed());
  scene.prove(scene.link);
  scene.prove(scene.other);
}

TEST_CASE("who opens a connection that was given up here is told that it is closed") {
  Scene scene;
  OpenMessage open;
  open.comm = 4711;
  open.sender = scene.link.send->number();
  scene.tell(0, MessageType::open, open);
  scene.world.deliverMessages();
  Buffer from(*scene.link.send, 100);
  const Posted posted = scene.link.send->isend(from.data(), 100, 1, from.handle(), nullptr);
  CHECK_FALSE(posted.ok);
  scene.prove(scene.other);
}

TEST_CASE("an opening that cannot be is an error of that comm") {
  Scene scene;
  OpenMessage open;
  open.comm = scene.link.recv->number();
  scene.tell(0, MessageType::open, open);
  scene.world.deliverMessages();
  CHECK(scene.link.recv->failed());
  CHECK_FALSE(scene.other.recv->failed());
  scene.prove(scene.other);
}

TEST_CASE("a half without rails or with other lanes is refused") {
  World world(Scene::options());
  EngineEntry in(*world.side(0).engine, EngineEntry::wait);
  auto peering = world.side(0).engine->peering(world.side(0).other, 4711, 1);
  REQUIRE(peering);
  PeeringInfo half = (*peering)->half();
  half.rails = 0;
  half.memory.railBlobs.clear();
  CHECK_FALSE((*peering)->adopt(half));
  half = (*peering)->half();
  half.laneAddresses.clear();
  CHECK_FALSE((*peering)->adopt(half));
  half = (*peering)->half();
  half.memory.railBlobs.push_back({});
  CHECK_FALSE((*peering)->adopt(half));
}

TEST_CASE("more in flight than was promised waits for its turn") {
  constexpr size_t kTries = 400, kBytes = 100;
  Scene scene;
  Buffer from(*scene.link.send, kBytes), to(*scene.link.recv, kBytes);
  fillPattern(from.data(), kBytes, 9);
  std::vector<Request*> receives;
  for (size_t i = 0; i < kTries; i++) {
    const ReceiveSpec spec{to.data(), kBytes, 1, to.handle(), nullptr};
    const Posted posted = scene.link.recv->irecv(std::span(&spec, 1));
    REQUIRE(posted.ok);
    if (posted.request) receives.push_back(posted.request);
  }
  // Expect: as many as NCCL may have, the others "not now".
  CHECK(receives.size() == kMaxRequests * kMaxRecvs);
  size_t sent = 0, received = 0;
  std::vector<Request*> sends;
  for (int i = 0; i < 20'000 && received < receives.size(); i++) {
    if (sent < receives.size()) {
      const Posted posted = scene.link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr);
      REQUIRE(posted.ok);
      if (posted.request) sends.push_back(posted.request), sent++;
    }
    scene.world.pump();
    if (scene.link.recv->test(receives[received], nullptr).done) received++;
  }
  CHECK(sends.size() == receives.size());
  for (Request* send : sends) CHECK(scene.link.send->test(send, nullptr).done);
  CHECK(firstMismatch(to.data(), kBytes, 9) == kBytes);
  scene.prove(scene.link);
}
