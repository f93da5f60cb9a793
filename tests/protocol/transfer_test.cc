// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// One connection, one step at a time: an event, then what it must lead to.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

Posted receive(RecvCommImpl& comm, Buffer& buffer, size_t offset, size_t bytes, int tag) {
  const ReceiveSpec spec{buffer.data() + offset, bytes, tag, buffer.handle(), nullptr};
  return comm.irecv(std::span(&spec, 1));
}

bool finished(World& world, CommBase& comm, Request* request, int* sizes = nullptr) {
  for (int i = 0; i < 2000; i++) {
    const Tested tested = comm.testRequest(request, sizes);
    REQUIRE(tested.ok);
    if (tested.done) return true;
    world.pump();
  }
  return false;
}

}  // namespace

TEST_CASE("a poll pass connects one rail, as a card's first peer may cost it long") {
  const auto passes = [](int rails) {
    WorldOptions options;
    for (int side = 0; side < 2; side++) {
      loop::LoopOptions fabric;
      fabric.rails = options.rails[side] = rails;
      options.transports[side] = loop::makeTransport(fabric);
    }
    World world(std::move(options));
    const Connection link = world.connect(0);
    CHECK(link.send->peering().lanesUp() == static_cast<size_t>(rails));
    return world.side(0).engine->pass();
  };
  CHECK(passes(8) == passes(4) + 4);
}

TEST_CASE("an eager message that comes before its receive waits for it") {
  World world({});
  Connection link = world.connect(0);
  Buffer from(*link.send, 100), to(*link.recv, 100);
  fillPattern(from.data(), 100, 7);

  const Posted sent = link.send->isend(from.data(), 100, 3, from.handle(), nullptr);
  // Expect: it leaves at once, though nobody has posted a receive, and the buffer may be used again.
  REQUIRE(sent.request);
  CHECK(link.send->test(sent.request, nullptr).done);
  fillPattern(from.data(), 100, 8);
  world.pump();

  const Posted got = receive(*link.recv, to, 0, 100, 3);
  // Expect: the receive is filled while it is posted, and no CTS is written for it.
  REQUIRE(got.request);
  int size = -1;
  CHECK(link.recv->test(got.request, &size).done);
  CHECK(size == 100);
  CHECK(firstMismatch(to.data(), 100, 7) == 100);
  CHECK(world.side(1).engine->counters().ctsOut == 0);
}

TEST_CASE("a large message waits for the receiver's line") {
  World world({});
  Connection link = world.connect(0);
  constexpr size_t kBytes = 100'000;
  Buffer from(*link.send, kBytes), to(*link.recv, kBytes + 5);
  fillPattern(from.data(), kBytes, 1);

  // Expect: not now, and no message number is used up by asking.
  for (int i = 0; i < 5; i++) {
    const Posted early = link.send->isend(from.data(), kBytes, 9, from.handle(), nullptr);
    CHECK(early.ok);
    CHECK_FALSE(early.request);
    world.pump();
  }
  const Posted got = receive(*link.recv, to, 5, kBytes, 9);
  REQUIRE(got.request);
  world.pump();
  const Posted sent = link.send->isend(from.data(), kBytes, 9, from.handle(), nullptr);
  REQUIRE(sent.request);
  int size = 0;
  CHECK(finished(world, *link.send, sent.request));
  CHECK(finished(world, *link.recv, got.request, &size));
  CHECK(size == static_cast<int>(kBytes));
  CHECK(firstMismatch(to.data() + 5, kBytes, 1) == kBytes);
}

TEST_CASE("a message without bytes is a message") {
  World world({});
  Connection link = world.connect(0);
  const bool eager = GENERATE(true, false);
  if (!eager) {  // drain the credits so that it must take the rendezvous path
    Buffer small(*link.send, 8);
    for (int i = 0; i < 64; i++)
      REQUIRE(link.send->isend(small.data(), 8, 1, small.handle(), nullptr).request);
    REQUIRE_FALSE(link.send->isend(small.data(), 8, 1, small.handle(), nullptr).request);
  }
  const ReceiveSpec nothing{nullptr, 0, 2, nullptr, nullptr};
  const Posted got = link.recv->irecv(std::span(&nothing, 1));
  REQUIRE(got.request);
  world.pump(3);
  const Posted sent = link.send->isend(nullptr, 0, 2, nullptr, nullptr);
  REQUIRE(sent.request);
  int size = -1;
  CHECK(finished(world, *link.recv, got.request, &size));
  CHECK(size == 0);
  CHECK(finished(world, *link.send, sent.request));
}

TEST_CASE("a send larger than its receive fails on both sides and writes nothing") {
  const size_t sentBytes = GENERATE(size_t{200}, size_t{50'000});
  World world({});
  Connection link = world.connect(0);
  Buffer from(*link.send, sentBytes), to(*link.recv, sentBytes);
  const size_t room = sentBytes - 1;
  const Posted got = receive(*link.recv, to, 0, room, 4);
  REQUIRE(got.request);
  world.pump(3);
  fillPattern(from.data(), sentBytes, 3);
  (void)link.send->isend(from.data(), sentBytes, 4, from.handle(), nullptr);
  world.pump(5);
  // Expect: both ends know, both name the tag and both sizes, and the buffer is as it was.
  CHECK(link.send->failed());
  CHECK(link.recv->failed());
  for (const Error& error : {link.send->stickyError(), link.recv->stickyError()}) {
    CHECK(error.message().find("tag 4") != std::string::npos);
    CHECK(error.message().find(std::to_string(sentBytes)) != std::string::npos);
    CHECK(error.message().find(std::to_string(room)) != std::string::npos);
  }
  for (size_t i = 0; i < sentBytes; i++) REQUIRE(to.data()[i] == std::byte{0});
  CHECK_FALSE(link.send->isend(from.data(), 1, 4, from.handle(), nullptr).ok);
  CHECK_FALSE(receive(*link.recv, to, 0, 1, 4).ok);
}

TEST_CASE("a CTS and an eager message may cross: the payload wins and the CTS is dropped") {
  World world({});
  Connection link = world.connect(0);
  Buffer from(*link.send, 64), to(*link.recv, 640);
  world.pump();  // the memory is announced and acknowledged
  for (uint64_t k = 0; k < 1000; k++) {
    const Posted got = receive(*link.recv, to, 64 * (k % 10), 64, 1);
    REQUIRE(got.request);
    for (int pass = 0; pass < 70; pass++) world.progress(1);  // the hold is over: the CTS leaves
    fillPattern(from.data(), 64, k);
    Posted sent;
    while (!sent.request)
      sent = link.send->isend(from.data(), 64, 1, from.handle(), nullptr), world.progress(1);
    CHECK(finished(world, *link.send, sent.request));
    CHECK(finished(world, *link.recv, got.request));
    CHECK(firstMismatch(to.data() + 64 * (k % 10), 64, k) == 64);
  }
  CHECK(world.side(1).engine->counters().ctsOut > 0);
}

namespace {

struct Events final : public ProfilerSink {
  void* begin(void*, const MessageEvent&) override { return this; }
  void end(void*, const MessageEvent&) override {}
};

}  // namespace

// A request of its own, as a profiler watches.
TEST_CASE("a small message that finds no request keeps its CTS for the next attempt") {
  WorldOptions options;
  options.profiler = std::make_shared<Events>();
  World world(std::move(options));
  Connection link = world.connect(0);
  Buffer from(*link.send, 64), to(*link.recv, 64);
  world.pump();
  int watched = 0;
  const auto send = [&](int tag) { return link.send->isend(from.data(), 64, tag, from.handle(), &watched); };
  std::vector<Request*> sends;
  while (sends.size() < size_t{kMaxRequests} * kMaxRecvs) {
    const Posted got = receive(*link.recv, to, 0, 64, 1);
    const Posted sent = send(1);
    REQUIRE((got.request && sent.request));
    sends.push_back(sent.request);
    REQUIRE(finished(world, *link.recv, got.request));
    world.pump();
  }
  const Posted got = receive(*link.recv, to, 0, 64, 1);
  REQUIRE(got.request);
  world.pump(100);  // its CTS is held back for a while
  CHECK_FALSE(send(1).request);
  CHECK(world.side(0).engine->counters().crossedCts == 0);
  // Event: there is a request again, and no credit. Expect: the message leaves by its CTS.
  while (link.send->isend(from.data(), 64, 2, from.handle(), nullptr).request) world.progress(0);
  REQUIRE(link.send->test(sends.back(), nullptr).done);
  fillPattern(from.data(), 64, 5);
  const Posted sent = send(1);
  REQUIRE(sent.request);
  CHECK(finished(world, *link.recv, got.request));
  CHECK(firstMismatch(to.data(), 64, 5) == 64);
}

TEST_CASE("CTS leave when messages stop coming eagerly, and not while they keep coming") {
  World world({});
  Connection link = world.connect(0);
  Buffer from(*link.send, 64), to(*link.recv, 64 * 32);
  world.pump();  // the memory is announced and acknowledged
  // As NCCL does: receives stay posted ahead of the messages.
  std::deque<Request*> ahead;
  const auto post = [&](size_t k) { ahead.push_back(receive(*link.recv, to, 64 * (k % 32), 64, 1).request); };
  const auto message = [&](size_t k) {
    fillPattern(from.data(), 64, k);
    const Posted sent = link.send->isend(from.data(), 64, 1, from.handle(), nullptr);
    REQUIRE(sent.request);
    CHECK(finished(world, *link.send, sent.request));
    CHECK(finished(world, *link.recv, ahead.front()));
    ahead.pop_front();
    CHECK(firstMismatch(to.data() + 64 * (k % 32), 64, k) == 64);
  };
  post(0);
  message(0);
  for (size_t k = 1; k < 32; k++) post(k);
  for (size_t k = 1; k < 500; k++) {
    message(k);
    post(k + 31);
  }
  CHECK(world.side(1).engine->counters().ctsOut == 0);
  for (int pass = 0; pass < 70; pass++) world.progress(1);
  const uint64_t told = world.side(1).engine->counters().ctsOut;
  CHECK(told == ahead.size());

  // Event: they go on. Expect: eagerly, though there is a CTS for each of the first; so no more CTS leave.
  for (size_t k = 500; k < 1000; k++) {
    message(k);
    post(k + 31);
  }
  CHECK(world.side(1).engine->counters().ctsOut == told);
}

TEST_CASE("while the sender has enough to do, CTS leave together") {
  World world({});
  Connection link = world.connect(0);
  constexpr size_t kBytes = 65536, kInFlight = 8, kMessages = 200;
  Buffer from(*link.send, kBytes), to(*link.recv, kBytes * kInFlight);
  fillPattern(from.data(), kBytes, 5);
  std::deque<Request*> receiving, sending;
  size_t posted = 0, sent = 0, received = 0;
  while (received < kMessages) {
    for (; posted < kMessages && receiving.size() < kInFlight; posted++)
      receiving.push_back(receive(*link.recv, to, posted % kInFlight * kBytes, kBytes, 3).request);
    if (sent < kMessages && sending.size() < kInFlight) {
      const Posted one = link.send->isend(from.data(), kBytes, 3, from.handle(), nullptr);
      if (one.request) sending.push_back(one.request), sent++;
    }
    if (!sending.empty() && link.send->test(sending.front(), nullptr).done) sending.pop_front();
    if (link.recv->test(receiving.front(), nullptr).done) {
      receiving.pop_front();
      CHECK(firstMismatch(to.data() + received % kInFlight * kBytes, kBytes, 5) == kBytes);
      std::memset(to.data() + received++ % kInFlight * kBytes, 0, kBytes);
    }
    world.pump();
  }
  // Expect: a CTS for each, in fewer than half as many writes.
  const EngineCounters& counters = world.side(1).engine->counters();
  CHECK(counters.ctsOut == kMessages);
  CHECK(counters.ctsWrites * 2 < kMessages);
}

TEST_CASE("a CTS waits for a batch until its tag's sender runs short") {
  World world({});
  Connection link = world.connect(0);
  constexpr size_t kBytes = 100'000;
  Buffer from(*link.send, kBytes), to(*link.recv, kBytes);
  const EngineCounters& counters = world.side(1).engine->counters();
  struct Posted {
    Request* request;
    int tag;
    size_t bytes;
  };
  std::deque<Posted> receives;
  const auto post = [&](int tag, size_t bytes) {
    const ReceiveSpec spec{to.data(), bytes, tag, to.handle(), nullptr};
    receives.push_back({link.recv->irecv(std::span(&spec, 1)).request, tag, bytes});
    REQUIRE(receives.back().request);
  };
  const auto message = [&] {
    const Posted next = receives.front();
    receives.pop_front();
    Request* sent = link.send->isend(from.data(), next.bytes, next.tag, from.handle(), nullptr).request;
    REQUIRE(sent);
    REQUIRE(finished(world, *link.send, sent));
    REQUIRE(finished(world, *link.recv, next.request));
  };
  for (int i = 0; i < 3; i++) post(1, kBytes);
  world.pump(3);
  REQUIRE(counters.ctsOut == 3);

  // Event: three more, with 300,000 bytes ahead of them. Expect: however long it takes, nothing is written.
  for (int i = 0; i < 3; i++) post(1, kBytes);
  world.pump(1000);
  CHECK(counters.ctsOut == 3);

  SECTION("a message leaves 200,000 bytes: they go in one write") {
    const uint64_t writes = counters.ctsWrites;
    message();
    CHECK(counters.ctsOut == 6);
    CHECK(counters.ctsWrites == writes + 1);
  }
  SECTION("another tag's line leaves at once, and they go along") {
    post(2, kBytes);
    CHECK(counters.ctsOut == 7);
  }
  SECTION("one that an eager message could fill waits for that message alone") {
    post(2, 8);
    world.pump(3);
    CHECK(counters.ctsOut == 7);
  }
  while (!receives.empty()) message();
}

TEST_CASE("256 receives may be posted, more are put off without an error") {
  World world({});
  Connection link = world.connect(0);
  Buffer to(*link.recv, 20'000);
  std::vector<Request*> requests;
  for (int i = 0; i < 256; i++) {
    const Posted got = receive(*link.recv, to, 0, 20'000, i % 5);
    REQUIRE(got.request);
    requests.push_back(got.request);
  }
  const Posted more = receive(*link.recv, to, 0, 20'000, 0);
  CHECK(more.ok);
  CHECK_FALSE(more.request);
  world.pump(10);
  // Expect: all of them can be sent to, in any order of tags, and the 257th has a place afterwards.
  Buffer from(*link.send, 20'000);
  for (int tag = 4; tag >= 0; tag--) {
    for (int i = tag; i < 256; i += 5) {
      Posted sent;
      for (int tries = 0; tries < 100 && !sent.request; tries++) {
        sent = link.send->isend(from.data(), 10'000, tag, from.handle(), nullptr);
        world.pump();
      }
      REQUIRE(sent.request);
      CHECK(finished(world, *link.send, sent.request));
    }
  }
  for (Request* request : requests) CHECK(finished(world, *link.recv, request));
  const Posted late = receive(*link.recv, to, 0, 20'000, 0);
  CHECK(late.request);
}

TEST_CASE("a CTS is not written before the peer acknowledged the memory it names") {
  World world({});
  Connection link = world.connect(0);
  std::vector<std::byte> memory(50'000);
  MemoryDesc desc;
  desc.address = memory.data();
  desc.length = memory.size();
  MemoryHandle* handle =
      *link.recv->addHandle(desc, PeerAccess::write);  // announced, but no message has been delivered yet
  const ReceiveSpec spec{memory.data(), memory.size(), 0, handle, nullptr};
  const Posted got = link.recv->irecv(std::span(&spec, 1));
  REQUIRE(got.request);
  for (int i = 0; i < 5; i++) world.progress(0), world.progress(1);
  CHECK(world.side(1).engine->counters().ctsOut == 0);
  world.deliverMessages();
  world.progress(1);
  CHECK(world.side(1).engine->counters().ctsOut == 1);
}

TEST_CASE("buffers that are not registered, or not here, are refused") {
  World world({});
  Connection link = world.connect(0);
  Connection other = world.connect(0);
  Buffer from(*link.send, 8192 * 3);
  SECTION("no handle") {
    CHECK_FALSE(link.send->isend(from.data(), 8, 0, nullptr, nullptr).ok);
  }
  SECTION("another comm's handle") {
    CHECK_FALSE(other.send->isend(from.data(), 8, 0, from.handle(), nullptr).ok);
  }
  SECTION("outside the range") {
    CHECK_FALSE(link.send->isend(from.data() + (size_t{1} << 20), 8, 0, from.handle(), nullptr).ok);
  }
  SECTION("more than a gigabyte") {
    CHECK_FALSE(link.send->isend(from.data(), kMaxMessageBytes + 1, 0, from.handle(), nullptr).ok);
  }
}

TEST_CASE("a send whose receiver had it, closed and left is done, confirmed or not") {
  World world({});
  Connection link = world.connect(0);
  constexpr size_t kBytes = 100'000;
  auto from = std::make_unique<Buffer>(*link.send, kBytes);
  auto to = std::make_unique<Buffer>(*link.recv, kBytes);
  fillPattern(from->data(), kBytes, 1);
  const Posted got = receive(*link.recv, *to, 0, kBytes, 9);
  REQUIRE(got.request);
  world.pump();
  const Posted sent = link.send->isend(from->data(), kBytes, 9, from->handle(), nullptr);
  REQUIRE(sent.request);
  // Only the receiver polls: the sender has not seen its completion yet.
  int size = 0;
  world.progress(1);
  REQUIRE(link.recv->testRequest(got.request, &size).done);
  CHECK(firstMismatch(to->data(), kBytes, 1) == kBytes);

  to.reset();
  link.recv->close();
  world.deliverMessages();
  world.side(0).engine->deliver({.peer = world.side(0).other, .peerDied = true, .reason = "it left"});
  // Expect: done before anybody polls, and its memory is free without any lane being cut.
  CHECK(from->handle()->inUse == 0);
  const Tested tested = link.send->testRequest(sent.request, &size);
  CHECK(tested.ok);
  CHECK(tested.done);
  CHECK(size == static_cast<int>(kBytes));
  // Event: its completion comes after all. Expect: the lane has nothing to do any more.
  const Lane& lane = link.send->peering().lane(0);
  CHECK(lane.waiting());
  world.progress(0);
  CHECK_FALSE(lane.waiting());
  CHECK(lane.outstandingBytes() == 0);
}

TEST_CASE("a send whose receiver failed before it closed and left is not done") {
  World world({});
  Connection link = world.connect(0);
  constexpr size_t kBytes = 100'000;
  Buffer from(*link.send, kBytes), to(*link.recv, kBytes);
  REQUIRE(receive(*link.recv, to, 0, kBytes, 9).request);
  world.pump();
  const Posted sent = link.send->isend(from.data(), kBytes, 9, from.handle(), nullptr);
  REQUIRE(sent.request);
  {
    // As a receiver does that had to cut its lanes to close.
    EngineEntry in(*world.side(1).engine, EngineEntry::wait);
    Peering& peering = link.recv->peering();
    peering.tell(MessageType::failed, FailedMessage{link.send->number(), "closed with data in flight"});
    peering.tell(MessageType::closed, CommMessage{link.send->number(), 0});
  }
  world.deliverMessages();
  world.side(0).engine->deliver({.peer = world.side(0).other, .peerDied = true, .reason = "it left"});
  // Expect: an error, though the peer said that it closed.
  const Tested tested = link.send->testRequest(sent.request, nullptr);
  CHECK_FALSE(tested.ok);
  CHECK_FALSE(tested.done);
}

TEST_CASE("what test said has failed stays failed, though its data still comes") {
  World world({});
  Connection link = world.connect(0);
  constexpr size_t kBytes = 100'000;
  Buffer from(*link.send, kBytes), to(*link.recv, kBytes);
  const Posted got = receive(*link.recv, to, 0, kBytes, 9);
  REQUIRE(got.request);
  world.pump();
  REQUIRE(link.send->isend(from.data(), kBytes, 9, from.handle(), nullptr).request);
  {
    EngineEntry in(*world.side(0).engine, EngineEntry::wait);
    link.send->peering().tell(MessageType::failed, FailedMessage{link.recv->number(), "for this test"});
  }
  world.deliverMessages();
  CHECK_FALSE(link.recv->testRequest(got.request, nullptr).ok);
  world.pump(5);
  const Tested again = link.recv->testRequest(got.request, nullptr);
  CHECK_FALSE(again.ok);
  CHECK_FALSE(again.done);
}

TEST_CASE("credits that are returned before a lane is up arrive, and eager messages go on") {
  World world({});
  test::Side& sender = world.side(0);
  test::Side& receiver = world.side(1);
  std::array<std::byte, control::kHandleBytes> handle{};
  auto listener = receiver.net->listen(receiver.context, receiver.device, handle);
  REQUIRE(listener);
  std::unique_ptr<SendComm> send;
  std::unique_ptr<RecvComm> recv;
  const auto step = [&] {
    if (!send) {
      auto stepped = sender.net->connect(sender.context, sender.device, handle);
      REQUIRE(stepped);
      send = stepped.take();
    }
    if (!recv) {
      auto stepped = receiver.net->accept(**listener);
      REQUIRE(stepped);
      recv = stepped.take();
    }
  };
  step(), step();
  // Event: the acceptor has the connector's half and connects; a message to a comm that was closed, say,
  // gives its slot back before the lane is up.
  Peering* peering = receiver.engine->peeringByNumber(0);
  REQUIRE(peering);
  world.deliverMessages();
  REQUIRE(peering->stage() == Stage::joining);
  {
    EngineEntry in(*receiver.engine, EngineEntry::wait);
    peering->returnCredits(true);
  }
  for (int i = 0; i < 100 && !(send && recv); i++) step(), world.pump();
  REQUIRE((send && recv));
  // Expect: many times the slots there are, all of them eagerly.
  constexpr size_t kBytes = 100;
  Buffer from(static_cast<SendCommImpl&>(*send), kBytes), to(static_cast<RecvCommImpl&>(*recv), kBytes);
  for (int i = 0; i < 500; i++) {
    const Posted posted = send->isend(from.data(), kBytes, 1, from.handle(), nullptr);
    REQUIRE(posted.request);
    CHECK(send->test(posted.request, nullptr).done);
    world.pump();
    const ReceiveSpec spec{to.data(), kBytes, 1, to.handle(), nullptr};
    Request* receiving = recv->irecv(std::span(&spec, 1)).request;
    REQUIRE(receiving);
    CHECK(recv->test(receiving, nullptr).done);
    world.pump();
  }
  CHECK(sender.engine->counters().eagerOut == 500);
}

// Does something within a pass, when the first message of several is handed out.
struct Interruption final : public ProfilerSink {
  void* begin(void* handle, const MessageEvent& event) override { return event.send ? nullptr : handle; }
  void end(void*, const MessageEvent&) override {
    if (const auto once = std::exchange(what, nullptr)) once();
  }
  std::function<void()> what;
};

TEST_CASE("what one pass found is handed out, though another poll runs meanwhile") {
  constexpr int kFirst = 6, kLater = 5;
  constexpr size_t kBytes = 100;
  auto interruption = std::make_shared<Interruption>();
  WorldOptions options;
  options.profiler = interruption;
  World world(std::move(options));
  Connection link = world.connect(0);
  Buffer from(*link.send, kBytes), to(*link.recv, (kFirst + kLater) * kBytes);
  std::vector<Request*> receiving;
  int wanted = 0;
  for (int i = 0; i < kFirst + kLater; i++) {
    const ReceiveSpec spec{to.data() + static_cast<size_t>(i) * kBytes, kBytes, 1, to.handle(), &wanted};
    receiving.push_back(link.recv->irecv(std::span(&spec, 1)).request);
    REQUIRE(receiving.back());
  }
  const auto send = [&](int messages) {
    for (int i = 0; i < messages; i++)
      REQUIRE(link.send->isend(from.data(), kBytes, 1, from.handle(), nullptr).request);
  };
  send(kFirst);
  // Event: while the first is handed out more arrive, and are polled.
  interruption->what = [&] {
    send(kLater);
    world.side(1).engine->drain(0);
  };
  world.progress(1);
  CHECK(world.side(1).engine->counters().eagerIn == kFirst + kLater);
  CHECK(world.side(1).engine->counters().duplicateNotes == 0);
  for (Request* request : receiving) CHECK(link.recv->testRequest(request, nullptr).done);
}
