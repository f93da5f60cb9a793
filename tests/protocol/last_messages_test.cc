// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>

#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// A sender that closes while its receiver is slow: its word that it has closed goes by the control link and
// overtakes the last messages. Only receives beyond what it sent end by it.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

void silent(LogLevel, const char*, int, const char*) {}  // errors are what is provoked

constexpr size_t kLarge = 50'000;

// A work is out of the sender's hands when it is posted, and lands when the receiver polls.
WorldOptions behind(bool direct, int rails) {
  WorldOptions options;
  options.rails[0] = options.rails[1] = rails;
  for (auto& transport : options.transports) {
    loop::LoopOptions fabric;
    fabric.rails = rails;
    fabric.messages = direct;
    fabric.landing = loop::Landing::whenPolled;
    fabric.delivery = Delivery::accepted;
    transport = loop::makeTransport(fabric);
  }
  return options;
}

// Side 0 sends to side 1.
struct Leaving {
  explicit Leaving(bool direct = false, int rails = 1)
      : world(behind(direct, rails)),
        link(world.connect(0)),
        from(*link.send, kLarge),
        to(*link.recv, 4 * kLarge) {
    setLogSink(silent);
    fillPattern(from.data(), kLarge, 1);
    world.pump();  // the memory is announced
  }
  ~Leaving() { setLogSink(nullptr); }

  Posted receive() {
    const ReceiveSpec spec{to.data() + kLarge * posted++, kLarge, 1, to.handle(), nullptr};
    return link.recv->irecv(std::span(&spec, 1));
  }
  void send(size_t bytes) {
    const Posted sent = link.send->isend(from.data(), bytes, 1, from.handle(), nullptr);
    REQUIRE(sent.request);
    for (int i = 0; i < 10 && !link.send->test(sent.request, nullptr).done; i++) world.progress(0);
  }
  // Its question whether all is here finds no answer in time.
  void closeSender() {
    link.send->close();
    world.deliverMessages();
  }
  bool arrived(Request* request, size_t bytes) {
    int size = 0;
    for (int i = 0; i < 10; i++) {
      const Tested tested = link.recv->test(request, &size);
      if (tested.done || !tested.ok) return tested.ok && size == static_cast<int>(bytes);
      world.progress(1);
    }
    return false;
  }
  void live(Milliseconds time) {
    for (Milliseconds passed{0}; passed < time; passed += Milliseconds(100)) {
      world.clock().advance(Milliseconds(100));
      world.deliverMessages();
      world.watch(1);
    }
  }
  bool ended(const char* why) const {
    return link.recv->failed() && link.recv->error().message().find(why) != std::string::npos;
  }
  template <class Body>
  void say(MessageType type, const Body& body) {
    EngineEntry in(*world.side(0).engine, EngineEntry::wait);
    world.side(0).engine->peeringByNumber(0)->tell(type, body);
  }

  World world;
  Connection link;
  Buffer from, to;
  size_t posted = 0;
};

}  // namespace

TEST_CASE("the last messages of a sender that has closed arrive, whatever way they go") {
  const bool direct = GENERATE(false, true);
  const size_t bytes = GENERATE(size_t{8}, kLarge);
  CAPTURE(direct, bytes);
  Leaving leaving(direct);
  const Posted first = leaving.receive();
  REQUIRE(first.request);
  leaving.world.pump(100);  // its CTS leaves, where nothing comes before it
  leaving.send(bytes);
  leaving.send(8);
  leaving.closeSender();
  REQUIRE_FALSE(leaving.link.recv->failed());
  // Expect: one may be posted for what is on its way, and none for more.
  const Posted second = leaving.receive();
  REQUIRE(second.request);
  CHECK(leaving.arrived(first.request, bytes));
  CHECK(leaving.arrived(second.request, 8));
  CHECK(firstMismatch(leaving.to.data(), bytes, 1) == bytes);
  CHECK_FALSE(leaving.link.recv->failed());
  CHECK_FALSE(leaving.receive().ok);
  CHECK(leaving.ended("closed the connection and sent nothing more"));
}

TEST_CASE("receives beyond what a sender that has closed had sent end when all of that is here") {
  Leaving leaving;
  const Posted first = leaving.receive(), second = leaving.receive(), third = leaving.receive();
  leaving.send(8);
  leaving.closeSender();
  CHECK_FALSE(leaving.link.recv->failed());
  CHECK(leaving.arrived(first.request, 8));
  CHECK_FALSE(leaving.link.recv->test(second.request, nullptr).ok);
  CHECK_FALSE(leaving.link.recv->test(third.request, nullptr).ok);
  CHECK(leaving.ended("closed the connection with 2 receives posted here"));
}

TEST_CASE("last messages that never come end the comm in words, and in time") {
  Leaving leaving;
  const Posted first = leaving.receive(), second = leaving.receive();
  REQUIRE(second.request);
  leaving.send(8);
  leaving.say(MessageType::closed, CommMessage{leaving.link.recv->number(), 2});
  leaving.world.deliverMessages();
  CHECK(leaving.arrived(first.request, 8));
  SECTION("while the lanes stand, after as long as a lane has for a message") {
    leaving.live(Milliseconds(9'000));
    CHECK_FALSE(leaving.link.recv->failed());
    leaving.live(Milliseconds(4'000));
  }
  SECTION("not while the peer's process does not answer") {
    leaving.live(Milliseconds(5'000));
    leaving.world.side(1).other->answering = false;
    leaving.live(Milliseconds(60'000));
    CHECK_FALSE(leaving.link.recv->failed());
    leaving.world.side(1).other->answering = leaving.world.side(1).other->settling = true;
    leaving.live(Milliseconds(9'000));
    leaving.world.side(1).other->settling = false;
    leaving.live(Milliseconds(9'000));
    CHECK_FALSE(leaving.link.recv->failed());
    leaving.live(Milliseconds(4'000));
  }
  CHECK(
      leaving.ended("node0 pid 1000 closed the connection, and 1 of its 2 messages did not come over rail "
                    "loop0"));
}

TEST_CASE("the last messages of a sender whose engine has gone are read first") {
  Leaving leaving;
  const Posted first = leaving.receive();
  leaving.send(8);
  leaving.send(8);
  leaving.closeSender();
  leaving.say(MessageType::engineGone, CommMessage{});
  leaving.world.deliverMessages();
  REQUIRE_FALSE(leaving.link.recv->failed());
  CHECK(leaving.arrived(first.request, 8));
  CHECK_FALSE(leaving.link.recv->failed());
  // One may be posted for what is here, and none for more.
  const Posted second = leaving.receive();
  REQUIRE(second.request);
  CHECK(leaving.arrived(second.request, 8));
  CHECK_FALSE(leaving.receive().ok);
  CHECK(leaving.ended("closed the connection and sent nothing more"));
}

TEST_CASE("after the sender's engine has gone its last messages may come by the lanes that are left") {
  Leaving leaving(false, 2);
  const Posted first = leaving.receive();
  leaving.send(8);
  leaving.closeSender();
  leaving.say(MessageType::engineGone, CommMessage{});
  leaving.world.deliverMessages();
  Peering& peering = leaving.link.recv->peering();
  peering.laneFailed(peering.lane(1), "the peer has closed it");
  leaving.live(Milliseconds(1'000));
  CHECK_FALSE(leaving.link.recv->failed());
  CHECK(leaving.arrived(first.request, 8));
  peering.laneFailed(peering.lane(0), "the peer has closed it");
  CHECK(peering.ending());
}
