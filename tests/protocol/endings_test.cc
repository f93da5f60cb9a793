// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <functional>

#include "src/base/log.h"
#include "src/core/ending_log.h"
#include "tests/protocol/kept_log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// A comm that fails or closes: its other end hears of it, and the comms beside it do not.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

void silent(LogLevel, const char*, int, const char*) {}  // errors are what is provoked

constexpr size_t kBytes = 50'000;

// Side 0 sends to side 1 on both connections, which share a peering.
struct Scene {
  explicit Scene(WorldOptions options = {})
      : world(std::move(options)), link(world.connect(0)), other(world.connect(0)) {
    setLogSink(silent);
  }
  ~Scene() { setLogSink(nullptr); }

  Request* receive(Connection& on, Buffer& into) {
    const ReceiveSpec spec{into.data(), kBytes, 1, into.handle(), nullptr};
    const Posted posted = on.recv->irecv(std::span(&spec, 1));
    REQUIRE(posted.request);
    return posted.request;
  }

  template <class Body>
  void tell(CommBase& from, MessageType type, const Body& body) {
    EngineEntry in(from.engine(), EngineEntry::wait);
    from.peering().tell(type, body);
  }

  // The other connection works.
  void prove() {
    Buffer from(*other.send, kBytes), to(*other.recv, kBytes);
    fillPattern(from.data(), kBytes, 7);
    Request* receiving = receive(other, to);
    Request* sending = nullptr;
    bool received = false;
    for (int i = 0; i < 2000 && !received; i++) {
      if (!sending) sending = other.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request;
      received = other.recv->test(receiving, nullptr).done;
      world.pump();
    }
    REQUIRE(received);
    CHECK(firstMismatch(to.data(), kBytes, 7) == kBytes);
    CHECK(other.send->test(sending, nullptr).done);
  }

  World world;
  Connection link;
  Connection other;
};

// What side 0 closes here is done at side 1 while the closing call sleeps.
void closeWith(Scene& scene, const std::function<void()>& whileSleeping, const std::function<void()>& close) {
  scene.world.clock().whileSleeping = whileSleeping;
  close();
  scene.world.clock().whileSleeping = nullptr;
}

// A message that its receiver has not, so that closing its sender asks for it.
void sendSmall(Connection& on) {
  Buffer from(*on.send, 8);
  REQUIRE(on.send->isend(from.data(), 8, 1, from.handle(), nullptr).request);
}

}  // namespace

TEST_CASE("a call that fails its comm ends the other end's wait") {
  Scene scene;
  Buffer from(*scene.link.send, kBytes), to(*scene.link.recv, kBytes);
  SECTION("a receiver's, of a sender that refused a message") {
    Request* receiving = scene.receive(scene.link, to);
    CHECK_FALSE(scene.link.send->isend(from.data(), kBytes, 1, nullptr, nullptr).ok);
    scene.world.pump();
    CHECK_FALSE(scene.link.recv->testRequest(receiving, nullptr).ok);
    CHECK(scene.link.recv->error().message().find("node0 pid 1000 reports: sending") != std::string::npos);
  }
  SECTION("a sender's, of a receiver that refused a receive") {
    const ReceiveSpec spec{to.data(), kBytes, 1, nullptr, nullptr};
    CHECK_FALSE(scene.link.recv->irecv(std::span(&spec, 1)).ok);
    scene.world.pump();
    CHECK_FALSE(scene.link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).ok);
    CHECK(scene.link.send->error().message().find("posting a receive") != std::string::npos);
  }
  // Expect: it is told once, however often that is tried.
  for (int i = 0; i < 3; i++) (void)scene.link.send->isend(from.data(), kBytes, 1, nullptr, nullptr);
  CHECK(scene.world.messages.empty());
  scene.prove();
}

TEST_CASE("a comm that failed before its other end was known tells it when it opens") {
  Scene scene;
  Engine& engine = *scene.world.side(1).engine;
  std::unique_ptr<RecvCommImpl> failing;
  {
    EngineEntry in(engine, EngineEntry::wait);
    auto made = RecvCommImpl::create(
        {nullptr, scene.world.side(1).context, scene.world.side(1).engine, &scene.link.recv->peering(), 0},
        0);
    REQUIRE(made);
    failing = made.take();
    failing->end({Ending::By::us, Error(Code::timeout, "accepting", "it took too long")});
  }
  scene.world.deliverMessages();
  CHECK_FALSE(scene.link.send->failed());
  OpenMessage open;
  open.comm = failing->number();
  open.sender = scene.link.send->number();
  scene.tell(*scene.link.send, MessageType::open, open);
  scene.world.deliverMessages();
  REQUIRE(scene.link.send->failed());
  CHECK(scene.link.send->error().message().find("it took too long") != std::string::npos);
  failing.reset();
  scene.prove();
}

TEST_CASE("memory of a comm that failed goes when its sends are over, and no lane is cut for it") {
  Scene scene;
  Buffer from(*scene.link.send, kBytes), to(*scene.link.recv, kBytes);
  (void)scene.receive(scene.link, to);
  scene.world.pump(3);
  REQUIRE(scene.link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request);
  scene.tell(*scene.link.recv, MessageType::failed, FailedMessage{scene.link.send->number(), "as I please"});
  scene.world.deliverMessages();
  REQUIRE(scene.link.send->failed());
  REQUIRE(from.handle()->inUse == 1);
  from.release();
  scene.world.deliverMessages();
  CHECK_FALSE(scene.other.send->failed());
  CHECK_FALSE(scene.other.recv->failed());
  scene.prove();
}

TEST_CASE("receives that a sender which closed did not use are dropped without cutting a lane") {
  Scene scene;
  Buffer from(*scene.link.send, kBytes), to(*scene.link.recv, 2 * kBytes);
  Request* used = scene.receive(scene.link, to);
  (void)scene.receive(scene.link, to);
  scene.world.pump(3);
  REQUIRE(scene.link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request);
  scene.world.pump(3);
  REQUIRE(scene.link.recv->testRequest(used, nullptr).done);
  // As a sender does that closes: its goodbye has its total.
  scene.tell(*scene.link.send, MessageType::closed, CommMessage{scene.link.recv->number(), 1});
  scene.world.deliverMessages();
  to.release();
  scene.link.recv->close();
  scene.world.deliverMessages();
  CHECK_FALSE(scene.other.send->failed());
  CHECK_FALSE(scene.other.recv->failed());
  scene.prove();
}

TEST_CASE("a receiver that closes does not wait for the answer of a sender that closed meanwhile") {
  WorldOptions options;
  options.config.closeTimeout = Milliseconds(20'000);
  Scene scene(std::move(options));
  Buffer to(*scene.link.recv, kBytes);
  (void)scene.receive(scene.link, to);
  scene.world.pump(3);
  const uint32_t number = scene.link.recv->number();
  const TimePoint begin = scene.world.clock().now();
  // Event: its goodbye crosses our question, which finds nobody any more.
  scene.world.clock().whileSleeping = [&] {
    ByteWriter body;
    encodeBody(&body, CommMessage{number, 0});
    scene.world.side(1).engine->deliver({.peer = scene.world.side(1).other,
                                         .type = MessageType::closed,
                                         .header = {.from = scene.world.side(0).engine->id()},
                                         .body = body.take()});
  };
  to.release();
  CHECK(scene.world.clock().now() - begin < std::chrono::seconds(10));
}

TEST_CASE("a peer that let one close wait in vain is asked again once it has answered") {
  Scene scene;
  Connection back = scene.world.connect(1);
  sendSmall(scene.link);
  closeWith(
      scene, [] {}, [&] { scene.link.send->close(); });
  Peering& peering = scene.other.send->peering();
  REQUIRE(peering.unresponsive(scene.world.clock().now()));
  // Event: the answer comes, for a comm that is closed.
  scene.world.pump(3);
  CHECK_FALSE(peering.unresponsive(scene.world.clock().now()));
  // Expect: memory under a receive goes after a word with its sender, and no lane is cut.
  auto to = std::make_unique<Buffer>(*back.recv, kBytes);
  (void)scene.receive(back, *to);
  scene.world.pump(3);
  closeWith(
      scene, [&] { scene.world.pump(); }, [&] { to.reset(); });
  CHECK_FALSE(peering.ending());
  scene.prove();
}

TEST_CASE("a peer that never answered a close is asked again much later") {
  Scene scene;
  sendSmall(scene.link);
  closeWith(
      scene, [] {}, [&] { scene.link.send->close(); });
  scene.world.messages.clear();
  Peering& peering = scene.other.send->peering();
  REQUIRE(peering.unresponsive(scene.world.clock().now()));
  scene.world.clock().advance(std::chrono::minutes(1));
  CHECK_FALSE(peering.unresponsive(scene.world.clock().now()));
}

TEST_CASE("time in which the closing process stood still says nothing about its peer") {
  Scene scene;
  sendSmall(scene.link);
  // Event: the closing thread is stopped for long, and the answer comes afterwards.
  int sleeps = 0;
  const auto stopped = [&] {
    if (sleeps++ == 0)
      scene.world.clock().advance(std::chrono::minutes(1));
    else
      scene.world.pump();
  };
  closeWith(scene, stopped, [&] { scene.link.send->close(); });
  CHECK_FALSE(scene.other.send->peering().unresponsive(scene.world.clock().now()));
  CHECK(sleeps > 1);
  scene.prove();
}

TEST_CASE("what ends a peering is told once, and both ends begin anew") {
  World world({});
  setLogSink(silent);
  // Side 0 has closed its comms and keeps the peering for later; side 1 has two that are open.
  Connection first = world.connect(0), second = world.connect(0);
  first.send->close();
  second.send->close();
  world.messages.clear();  // side 1 has not heard of it yet
  Peering& ended = first.recv->peering();
  {
    EngineEntry in(*world.side(1).engine, EngineEntry::wait);
    ended.end({Ending::By::us, Error(Code::remote, "sending", "a cable was pulled")});
    ended.end({Ending::By::us, Error(Code::remote, "sending", "again")});
  }
  CHECK(world.messages.size() == 1);
  CHECK(first.recv->failed());
  CHECK(second.recv->failed());
  world.deliverMessages();
  // Expect: the end without comms knows, and a new connection goes over new lanes, though side 1 has not
  // closed what failed.
  CHECK(world.side(0).engine->peeringByNumber(0)->ending());
  Connection third = world.connect(0);
  CHECK(&third.recv->peering() != &ended);
  Buffer from(*third.send, 8), to(*third.recv, 8);
  const ReceiveSpec spec{to.data(), 8, 3, to.handle(), nullptr};
  const Posted got = third.recv->irecv(std::span(&spec, 1));
  CHECK(third.send->isend(from.data(), 8, 3, from.handle(), nullptr).request);
  world.pump(3);
  CHECK(third.recv->testRequest(got.request, nullptr).done);
  // Event: the old comms are closed. Expect: what they say of the old peering does nothing to the new one.
  first.recv->close();
  second.recv->close();
  world.deliverMessages();
  CHECK_FALSE(third.send->failed());
  CHECK_FALSE(third.recv->peering().ending());
  setLogSink(nullptr);
}

TEST_CASE("a call that comes after the peer closed says why, as a warning") {
  World world({});
  Connection link = world.connect(0);
  const int before = loggedWarnings();
  SECTION("a receive that was posted before") {
    Buffer to(*link.recv, 8);
    const ReceiveSpec spec{to.data(), 8, 3, to.handle(), nullptr};
    REQUIRE(link.recv->irecv(std::span(&spec, 1)).request);
    const KeptLog log;
    link.send->close();
    world.deliverMessages();
    CHECK(log.text().find("closed the connection with 1 receives posted here") != std::string::npos);
    CHECK(loggedWarnings() == before + 1);
    CHECK(link.recv->failed());
  }
  SECTION("a receive that is posted after") {
    link.send->close();
    world.deliverMessages();
    Buffer to(*link.recv, 8);
    const ReceiveSpec spec{to.data(), 8, 3, to.handle(), nullptr};
    const KeptLog log;
    CHECK_FALSE(link.recv->irecv(std::span(&spec, 1)).ok);
    CHECK(log.text().find("closed the connection and sent nothing more") != std::string::npos);
    CHECK(loggedWarnings() == before + 1);
  }
  SECTION("a send") {
    link.recv->close();
    world.deliverMessages();
    Buffer from(*link.send, 8);
    const KeptLog log;
    CHECK_FALSE(link.send->isend(from.data(), 8, 3, from.handle(), nullptr).ok);
    CHECK(log.text().find("a message after the receiver closed the connection") != std::string::npos);
    CHECK(loggedWarnings() == before + 1);
  }
}

TEST_CASE("memory that NCCL takes away under its receives, as it does when it aborts, is no warning") {
  World world({});
  Connection link = world.connect(0);
  Buffer to(*link.recv, 8);
  const ReceiveSpec spec{to.data(), 8, 3, to.handle(), nullptr};
  REQUIRE(link.recv->irecv(std::span(&spec, 1)).request);
  const int before = loggedWarnings();
  to.release();
  CHECK(link.recv->failed());
  link.recv->close();
  world.deliverMessages();
  CHECK(loggedWarnings() == before);
}

TEST_CASE("memory taken away in time ends the receives beside it with a word") {
  Scene scene;
  Buffer from(*scene.link.send, kBytes), taken(*scene.link.recv, kBytes), beside(*scene.link.recv, kBytes);
  Request* first = scene.receive(scene.link, taken);
  Request* second = scene.receive(scene.link, beside);
  scene.world.pump(3);
  REQUIRE(scene.link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request);
  // Event: the memory of the first is given back while its message is on its way, which arrives.
  closeWith(
      scene, [&] { scene.world.pump(); }, [&] { taken.release(); });
  CHECK(scene.link.recv->testRequest(first, nullptr).done);
  // Expect: the sender has stopped, so the second receive is over as well, and later ones are refused.
  CHECK_FALSE(scene.link.recv->testRequest(second, nullptr).ok);
  CHECK(scene.link.recv->error().message().find("deregistering memory") != std::string::npos);
  CHECK(beside.handle()->inUse == 0);
  const ReceiveSpec spec{beside.data(), kBytes, 1, beside.handle(), nullptr};
  CHECK_FALSE(scene.link.recv->irecv(std::span(&spec, 1)).ok);
  scene.prove();
}

TEST_CASE("a receive after memory was taken away under an earlier one is refused with a word") {
  Scene scene;
  Buffer from(*scene.link.send, kBytes), taken(*scene.link.recv, kBytes), beside(*scene.link.recv, kBytes);
  Request* first = scene.receive(scene.link, taken);
  scene.world.pump(3);
  REQUIRE(scene.link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request);
  closeWith(
      scene, [&] { scene.world.pump(); }, [&] { taken.release(); });
  CHECK(scene.link.recv->testRequest(first, nullptr).done);
  CHECK_FALSE(scene.link.recv->failed());
  const ReceiveSpec spec{beside.data(), kBytes, 1, beside.handle(), nullptr};
  CHECK_FALSE(scene.link.recv->irecv(std::span(&spec, 1)).ok);
  CHECK(scene.link.recv->error().message().find("deregistering memory") != std::string::npos);
}

TEST_CASE("what ends the comms of one peer is said once, and then counted") {
  World world({});
  std::vector<Connection> links;
  for (int i = 0; i < 4; i++) links.push_back(world.connect(0));
  for (Connection& link : links) link.send->close();
  world.deliverMessages();
  Buffer to(*links[0].recv, 8);
  const int before = loggedWarnings();
  const auto post = [](Connection& link) {
    const ReceiveSpec spec{nullptr, 0, 3, nullptr, nullptr};
    CHECK_FALSE(link.recv->irecv(std::span(&spec, 1)).ok);
  };
  {
    const KeptLog log;
    for (int i = 0; i < 3; i++) post(links[i]);
    CHECK(loggedWarnings() == before + 1);
    CHECK(log.text().find("1 more comm to node0 pid 1000 ended for that reason, 3 so far") !=
          std::string::npos);
  }
  // Event: much later it happens again. Expect: it is said again.
  world.clock().advance(Milliseconds(11'000));
  world.progress(1);
  const KeptLog log;
  post(links[3]);
  CHECK(loggedWarnings() == before + 2);
}

TEST_CASE("a peer that closes after another one was lost is not taken for the cause") {
  World world({});
  Connection link = world.connect(0);
  const control::PeerRef lost = link.send->peering().peer(), closing = link.recv->peering().peer();
  const auto ended = [](Ending::By by, const char* why) {
    return Ending(by, Error(Code::remote, "waiting", why));
  };
  const TimePoint now = world.clock().now() + Milliseconds(600'000);  // past what other cases lost
  const KeptLog log;
  SECTION("soon after") {
    logEnding(lost, 2, ended(Ending::By::gone, "it is gone"), now);
    logEnding(closing, 1, ended(Ending::By::peer, "it closed the connection"), now + Milliseconds(2'500));
    CHECK(log.text().find(
              "1 comm to node0 pid 1000 ended: waiting: it closed the connection; 2 s earlier comms "
              "to node1 pid 1001 ended: waiting: it is gone") != std::string::npos);
  }
  SECTION("long after, or for a reason of this end's own") {
    logEnding(lost, 2, ended(Ending::By::gone, "it is gone"), now);
    logEnding(closing, 1, ended(Ending::By::us, "this end failed"), now + Milliseconds(2'500));
    logEnding(closing, 1, ended(Ending::By::peer, "it closed the connection"), now + Milliseconds(31'000));
    CHECK(log.text().find("earlier") == std::string::npos);
  }
  SECTION("soon after, in another job that this process plays") {
    logEnding(lost, 2, ended(Ending::By::gone, "it is gone"), now);
    forgetEndings();
    logEnding(closing, 1, ended(Ending::By::peer, "it closed the connection"), now + Milliseconds(2'500));
    logEnding(lost, 2, ended(Ending::By::gone, "it is gone"), now);
    CHECK(log.text().find("earlier") == std::string::npos);
    CHECK(log.text().find("more comm") == std::string::npos);
  }
}

TEST_CASE("what a peer sent before it left is received, though nobody had read it yet") {
  Scene scene;
  Buffer from(*scene.link.send, kBytes), to(*scene.link.recv, kBytes);
  fillPattern(from.data(), kBytes, 3);
  Request* first = scene.receive(scene.link, to);
  scene.world.pump(3);
  REQUIRE(scene.link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request);
  // Event: the control link is quicker than whoever reads the queues.
  const test::Side& side = scene.world.side(1);
  SECTION("its engine is closed") {
    scene.tell(*scene.link.send, MessageType::engineGone, CommMessage{});
    scene.world.deliverMessages();
    CHECK_FALSE(scene.link.recv->failed());
  }
  SECTION("its process is gone") {
    side.other->living = false;
    side.hub->handler().onPeerDead(side.other, Error(Code::remote, "watching peers", "it exited"));
    CHECK(scene.link.recv->failed());  // it had not said that this was its last message
  }
  CHECK(scene.link.recv->testRequest(first, nullptr).done);
  CHECK(firstMismatch(to.data(), kBytes, 3) == kBytes);
}
