// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "src/base/log.h"
#include "src/core/net.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"
#include "tests/support/patience.h"

// Two Nets of one process that connect as NCCL has them do it, over a control link.
using namespace weft;
using namespace weft::core;
using fault::FaultKind;
using fault::FaultOp;

namespace {

void silent(LogLevel, const char*, int, const char*) {}  // what fails is planned

struct Silence {
  Silence() { setLogSink(silent); }
  ~Silence() { setLogSink(nullptr); }
};

struct End {
  explicit End(Milliseconds connectTimeout) {
    auto transport = fault::makeTransport(loop::makeTransport({}));
    control = transport->control();
    NetOptions options;
    options.config.connectTimeout = connectTimeout;
    options.transport = std::move(transport);
    auto made = Net::create(std::move(options));
    REQUIRE(made);
    net = *made;
    context = net->openContext({});
  }

  std::shared_ptr<fault::FaultControl> control;
  std::shared_ptr<Net> net;
  ContextRef context;
};

// Its lanes do not come up.
void neverConnects(const End& end) {
  fault::FaultRule never;
  never.kind = FaultKind::connectNever;
  never.op = FaultOp::call;
  end.control->add(never);
}

auto registerAll(SendComm& comm, std::vector<std::byte>& memory) {
  MemoryDesc desc;
  desc.address = memory.data();
  desc.length = memory.size();
  return comm.registerMemory(desc);
}

// Another thread that is inside an engine for a while, as NCCL's threads are now and then.
class Occupied {
 public:
  explicit Occupied(Engine& engine, std::chrono::milliseconds time = std::chrono::milliseconds(30))
      : thread_([this, &engine, time] { stay(engine, time); }) {
    while (!inside_) std::this_thread::yield();
  }
  ~Occupied() { thread_.join(); }
  void leave() { leaving_ = true; }  // sooner than in that time

 private:
  void stay(Engine& engine, std::chrono::milliseconds time) {
    EngineEntry in(engine, EngineEntry::wait);
    inside_ = true;
    const auto end = std::chrono::steady_clock::now() + time;
    while (!leaving_ && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::atomic<bool> inside_{false};
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

// A connector's lane stands when the acceptor has connected as well, and not before.
test::WorldOptions slowly() {
  test::WorldOptions options;
  loop::LoopOptions fabric;
  fabric.targetMustKnow = true;
  for (auto& transport : options.transports) transport = loop::makeTransport(fabric);
  return options;
}

// Both ends know of each other, and their lanes are not up.
void beginBoth(test::Side& sender, test::Side& receiver, ListenComm& listener,
               std::span<std::byte, control::kHandleBytes> handle) {
  for (int i = 0; i < 2; i++) {
    auto connecting = sender.net->connect(sender.context, sender.device, handle);
    REQUIRE(connecting);
    REQUIRE_FALSE(*connecting);
    auto accepting = receiver.net->accept(listener);
    REQUIRE(accepting);
    REQUIRE_FALSE(*accepting);
  }
}

// A pause between two calls; false once a test has waited long enough.
class Pause {
 public:
  bool operator()() const {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::chrono::steady_clock::now() < end_;
  }

 private:
  const std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(10) * test::patience();
};

}  // namespace

TEST_CASE("a connector whose lanes are up is told when its acceptor gives up") {
  const Silence silence;
  const Pause wait;
  End connecting(Milliseconds(20'000)), accepting(Milliseconds(500) * test::patience());
  neverConnects(accepting);
  std::array<std::byte, control::kHandleBytes> handle;
  auto listener = accepting.net->listen(accepting.context, 0, handle);
  REQUIRE(listener);

  std::unique_ptr<SendComm> sender;
  std::optional<Error> refusal;
  while (!(sender && refusal) && wait()) {
    if (!sender) {
      auto made = connecting.net->connect(connecting.context, 0, handle);
      REQUIRE(made);
      sender = made.take();
    }
    if (auto accepted = accepting.net->accept(**listener); !accepted) refusal = accepted.takeError();
  }
  REQUIRE(sender);
  REQUIRE(refusal);
  // Expect: it does not wait for CTS for ever, though the listener is still there.
  std::vector<std::byte> memory(100'000);
  auto registered = registerAll(*sender, memory);
  Posted posted;
  while (registered && posted.ok && wait())
    posted = sender->isend(memory.data(), memory.size(), 1, *registered, nullptr);
  REQUIRE_FALSE((registered && posted.ok));
  CHECK(sender->error().message().find("began to connect and did not finish") != std::string::npos);
}

TEST_CASE("a connection whose connector has closed it and is gone is accepted all the same") {
  const Silence silence;
  const Pause wait;
  End accepting(Milliseconds(60'000) * test::patience());
  std::optional<End> connecting(Milliseconds(20'000));
  std::array<std::byte, control::kHandleBytes> handle;
  auto listener = accepting.net->listen(accepting.context, 0, handle);
  REQUIRE(listener);
  // The acceptor's end of the lane comes up later than the connector's.
  neverConnects(accepting);

  // Event: the connector closes comm and library while NCCL does not call accept.
  std::unique_ptr<SendComm> sender;
  while (!sender && wait()) {
    auto made = connecting->net->connect(connecting->context, 0, handle);
    REQUIRE(made);
    sender = made.take();
    auto accepted = accepting.net->accept(**listener);
    REQUIRE(accepted);
    REQUIRE_FALSE(*accepted);
  }
  REQUIRE(sender);
  sender->close();
  sender.reset();
  connecting.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(200) * test::patience());

  // Expect: a comm, at once.
  std::unique_ptr<RecvComm> receiver;
  while (!receiver && wait()) {
    auto accepted = accepting.net->accept(**listener);
    REQUIRE(accepted);
    receiver = accepted.take();
  }
  REQUIRE(receiver);
  CHECK_FALSE(receiver->irecvOne(nullptr, 0, 1, nullptr, nullptr).ok);
  CHECK(receiver->error().message().find("closed the connection and sent nothing more") != std::string::npos);
}

TEST_CASE("a connection whose acceptor has closed it is connected all the same, and says so to who sends") {
  const Silence silence;
  const Pause wait;
  End accepting(Milliseconds(60'000) * test::patience()), connecting(Milliseconds(60'000) * test::patience());
  neverConnects(connecting);
  std::array<std::byte, control::kHandleBytes> handle;
  auto listener = accepting.net->listen(accepting.context, 0, handle);
  REQUIRE(listener);

  // Event: the lane is up at the acceptor alone, which accepts, and closes.
  std::unique_ptr<RecvComm> receiver;
  while (!receiver && wait()) {
    auto made = connecting.net->connect(connecting.context, 0, handle);
    REQUIRE(made);
    REQUIRE_FALSE(*made);
    auto accepted = accepting.net->accept(**listener);
    REQUIRE(accepted);
    receiver = accepted.take();
  }
  REQUIRE(receiver);
  receiver->close();
  receiver.reset();

  // Expect: a comm, long before the deadline, though no lane is up.
  std::unique_ptr<SendComm> sender;
  while (!sender && wait()) {
    auto made = connecting.net->connect(connecting.context, 0, handle);
    REQUIRE(made);
    sender = made.take();
  }
  REQUIRE(sender);
  std::vector<std::byte> memory(100);
  auto registered = registerAll(*sender, memory);
  REQUIRE(registered);
  CHECK_FALSE(sender->isend(memory.data(), memory.size(), 1, *registered, nullptr).ok);
  CHECK(sender->error().message().find("closed the connection") != std::string::npos);
}

TEST_CASE(
    "a connection that is up is no timeout, though its engine is occupied when the deadline has passed") {
  test::World world(slowly());
  test::Side& sender = world.side(0);
  test::Side& receiver = world.side(1);
  std::array<std::byte, control::kHandleBytes> handle{};
  auto listener = receiver.net->listen(receiver.context, receiver.device, handle);
  REQUIRE(listener);
  beginBoth(sender, receiver, **listener, handle);
  // Event: the lanes come up while NCCL does not call for longer than the deadline.
  world.pump(5);
  world.clock().advance(test::configOfTests().connectTimeout + Milliseconds(1000));
  {
    const Occupied occupied(*sender.engine);
    auto connected = sender.net->connect(sender.context, sender.device, handle);
    REQUIRE(connected);
    CHECK(*connected);
  }
  const Occupied occupied(*receiver.engine);
  auto accepted = receiver.net->accept(**listener);
  REQUIRE(accepted);
  CHECK(*accepted);
}

TEST_CASE("while a connection that NCCL gave up is closed other calls go on") {
  test::World world(slowly());
  test::Side& sender = world.side(0);
  test::Side& receiver = world.side(1);
  std::array<std::byte, control::kHandleBytes> handle{}, another{};
  auto listener = receiver.net->listen(receiver.context, receiver.device, handle);
  REQUIRE(listener);
  beginBoth(sender, receiver, **listener, handle);
  world.clock().advance(test::configOfTests().connectTimeout * 3);
  Occupied occupied(*sender.engine, std::chrono::seconds(10));
  world.clock().yields = 0;
  // Event: the next call finds that it was given up, and has to wait for the engine to close it.
  auto listening = std::async(std::launch::async,
                              [&] { return sender.net->listen(sender.context, sender.device, another); });
  while (world.clock().yields == 0) std::this_thread::yield();
  auto other = std::async(std::launch::async, [&] { return sender.net->runtime().operator bool(); });
  CHECK(other.wait_for(std::chrono::seconds(5)) == std::future_status::ready);
  occupied.leave();
  CHECK(listening.get());
}

TEST_CASE("a connection that NCCL gave up ends with the control thread's tick, though no call follows") {
  test::World world(slowly());
  test::Side& sender = world.side(0);
  test::Side& receiver = world.side(1);
  std::array<std::byte, control::kHandleBytes> handle{};
  auto listener = receiver.net->listen(receiver.context, receiver.device, handle);
  REQUIRE(listener);
  beginBoth(sender, receiver, **listener, handle);
  const auto tick = [&](Milliseconds later) {
    world.clock().advance(later);
    sender.hub->handler().onTick(world.clock().now());
  };
  // Expect: NCCL may call again for twice the time that a connection has.
  tick(test::configOfTests().connectTimeout * 2);
  CHECK(sender.runtime->connecting());
  tick(Milliseconds(1));
  CHECK_FALSE(sender.runtime->connecting());
  for (int i = 0; i < 1000; i++) tick(Milliseconds(1));  // its comm is closed by the passes
  EngineEntry in(*sender.engine, EngineEntry::wait);
  int comms = 0;
  sender.engine->eachComm([&](const CommBase&) { comms++; });
  CHECK(comms == 0);
}

namespace {

// The end that connects has its comm. The acceptor's is made as well, but accept is not called any more.
std::unique_ptr<SendComm> connectHalf(test::World& world,
                                      const std::array<std::byte, control::kHandleBytes>& handle,
                                      ListenComm& listener, const std::function<void()>& pass) {
  test::Side& connecting = world.side(0);
  auto scratch = handle;
  std::unique_ptr<SendComm> sender;
  for (int i = 0; i < 1000 && !sender; i++) {
    auto made = connecting.net->connect(connecting.context, connecting.device, scratch);
    REQUIRE(made);
    sender = made.take();
    if (i == 0) {
      auto accepted = world.side(1).net->accept(listener);
      REQUIRE(accepted);
      REQUIRE_FALSE(*accepted);
    }
    pass();
  }
  REQUIRE(sender);
  return sender;
}

}  // namespace

// Nobody has seen the acceptor's comm, and whoever gives it up may be a thread that must not wait.
TEST_CASE("a connection that is given up on the way closes without a wait") {
  const Silence silence;
  test::World world{test::WorldOptions{}};
  int sleeps = 0;
  world.clock().whileSleeping = [&] {
    sleeps++;
    world.pump();
  };
  test::Side& accepting = world.side(1);
  std::array<std::byte, control::kHandleBytes> handle;
  auto listener = accepting.net->listen(accepting.context, accepting.device, handle);
  REQUIRE(listener);
  auto sender = connectHalf(world, handle, **listener, [&] { world.pump(); });

  // Event: NCCL gives the listener up.
  listener->reset();
  CHECK(sleeps == 0);
  // Expect: the sender's end hears of it, and nothing of either comm is left behind.
  sender->close();
  sender.reset();
  world.pump(10);
  for (int side = 0; side < 2; side++) {
    EngineEntry in(*world.side(side).engine, EngineEntry::wait);
    Peering* peering = world.side(side).engine->peeringByNumber(0);
    CHECK((!peering || peering->comms == 0));
  }
  world.clock().whileSleeping = nullptr;
}

// The peer's lane is up before its half is here, so messages may come, and their slots are free again with
// the comm. Where the word about them has to be written is not known yet.
TEST_CASE("messages to a connection that is given up on the way cost the next one nothing") {
  const Silence silence;
  test::WorldOptions options;
  options.config.eagerSlots = 4;
  test::World world(std::move(options));
  test::Side& connecting = world.side(0);
  test::Side& accepting = world.side(1);
  std::array<std::byte, control::kHandleBytes> handle;
  auto listener = accepting.net->listen(accepting.context, accepting.device, handle);
  REQUIRE(listener);
  auto sender = connectHalf(world, handle, **listener, [&] {
    for (int side = 0; side < 2; side++) world.progress(side);
  });
  std::vector<std::byte> memory(100);
  auto registered = registerAll(*sender, memory);
  REQUIRE(registered);
  for (int i = 0; i < 4; i++)
    REQUIRE(sender->isend(memory.data(), memory.size(), 1, *registered, nullptr).request);
  world.progress(0);
  world.progress(1);

  // Event: NCCL gives the listener up, and connects the other way.
  listener->reset();
  test::Connection back = world.connect(1);
  test::Buffer from(*back.send, 100), to(*back.recv, 100);
  const Posted sent = back.send->isend(from.data(), from.size(), 1, from.handle(), nullptr);
  REQUIRE(sent.request);
  const Posted received = back.recv->irecvOne(to.data(), to.size(), 1, to.handle(), nullptr);
  REQUIRE(received.request);
  world.pump(10);
  int size = 0;
  const Tested tested = core::test(received.request, &size);
  CHECK(tested.ok);
  CHECK(tested.done);
  CHECK(core::test(sent.request, &size).done);
  // Expect: the first sender hears that nobody receives, and its slots are its own again.
  EngineEntry in(*connecting.engine, EngineEntry::wait);
  Peering* peering = connecting.engine->peeringByNumber(0);
  REQUIRE(peering);
  CHECK_FALSE(peering->ending());
}

TEST_CASE("a connector that does not come back holds up no other one") {
  const Silence silence;
  test::World world{test::WorldOptions{}};
  test::Side& connecting = world.side(0);
  test::Side& accepting = world.side(1);
  std::array<std::byte, control::kHandleBytes> handle;
  auto listener = accepting.net->listen(accepting.context, accepting.device, handle);
  REQUIRE(listener);
  // A connector has asked, is being accepted, and calls no more.
  auto lost = handle;
  auto asked = connecting.net->connect(connecting.context, connecting.device, lost);
  REQUIRE((asked && !*asked));
  world.pump();
  auto answered = accepting.net->accept(**listener);
  REQUIRE((answered && !*answered));

  // Event: another one connects. Expect: it is accepted meanwhile.
  std::unique_ptr<SendComm> sender;
  std::unique_ptr<RecvComm> receiver;
  for (int i = 0; i < 50 && !(sender && receiver); i++) {
    if (!sender) {
      auto made = connecting.net->connect(connecting.context, connecting.device, handle);
      REQUIRE(made);
      sender = made.take();
    }
    if (!receiver) {
      auto made = accepting.net->accept(**listener);
      REQUIRE(made);
      receiver = made.take();
    }
    world.pump();
  }
  CHECK(sender);
  CHECK(receiver);
}
