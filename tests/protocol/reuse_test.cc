// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <deque>

#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Slots of receives are used again and again, by one comm or by several, and what was said of an earlier use
// must not pass for the present one.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

void silent(LogLevel, const char*, int, const char*) {}  // receives are still posted when the worlds end

struct Silence {
  Silence() { setLogSink(silent); }
  ~Silence() { setLogSink(nullptr); }
};

constexpr size_t kSmall = 64, kLarge = 50'000, kAhead = 8;

Request* receive(RecvCommImpl& comm, Buffer& into, size_t bytes, int tag) {
  const ReceiveSpec spec{into.data(), bytes, tag, into.handle(), nullptr};
  const Posted posted = comm.irecv(std::span(&spec, 1));
  REQUIRE(posted.request);
  return posted.request;
}

// As NCCL does: receives stay posted ahead of the messages of tag 2.
class Stream {
 public:
  Stream(World& world, Connection& link)
      : world_(world), link_(link), from_(*link.send, kLarge), to_(*link.recv, kLarge) {
    world.pump();  // the memory is announced and acknowledged
    for (size_t i = 0; i < kAhead; i++) post(kSmall);
  }

  void post(size_t bytes) { ahead_.push_back(receive(*link_.recv, to_, bytes, 2)); }

  // Sends one, and takes it. False: it never came.
  bool message(size_t bytes, uint64_t number) {
    fillPattern(from_.data(), bytes, number);
    Request* sending = nullptr;
    bool sent = false, received = false;
    for (int i = 0; i < 1000 && !(sent && received); i++) {
      if (!sending) sending = link_.send->isend(from_.data(), bytes, 2, from_.handle(), nullptr).request;
      if (sending && !sent) sent = link_.send->test(sending, nullptr).done;
      if (!received) received = link_.recv->test(ahead_.front(), nullptr).done;
      world_.pump();
    }
    ahead_.pop_front();
    return received && firstMismatch(to_.data(), bytes, number) == bytes;
  }

 private:
  World& world_;
  Connection& link_;
  Buffer from_, to_;
  std::deque<Request*> ahead_;
};

}  // namespace

TEST_CASE("a CTS that was queued for an earlier use of a slot is not written for a later one") {
  const Silence silence;
  // Each slot is used 16 times and more, so that its generation comes around, by every number of messages;
  // and once more entries are left behind than the queue has room for.
  for (uint64_t messages = 100; messages <= 160; messages++) {
    const uint64_t count = messages < 160 ? messages : 2000;
    INFO(count << " messages");
    World world({});
    Connection link = world.connect(0);
    Buffer idle(*link.recv, kSmall);
    Stream stream(world, link);
    // Event: a receive waits, and so does its CTS while messages of another tag come eagerly.
    (void)receive(*link.recv, idle, kSmall, 1);
    for (uint64_t i = 0; i < count; i++) {
      REQUIRE(stream.message(kSmall, i));
      stream.post(kSmall);
    }
    // Event: they stop, so the CTS leave. Expect: those of the receives that are open, in their order.
    for (int pass = 0; pass < 70; pass++) world.progress(1);
    CHECK(world.side(1).engine->counters().ctsOut == kAhead + 1);
    for (uint64_t i = 0; i < kAhead; i++) REQUIRE(stream.message(kSmall, count + i));
    stream.post(kLarge);
    REQUIRE(stream.message(kLarge, 7));
  }
}

TEST_CASE("memory that CTS are written from rests as long as writes from it may wait in a queue") {
  World world({});
  Connection link = world.connect(0);
  const auto closeOne = [&](Connection& of) {
    const std::byte* memory = of.recv->staging().data();
    world.clock().whileSleeping = [&] { world.pump(); };
    of.send->close();
    of.recv->close();
    world.clock().whileSleeping = nullptr;
    of = {};
    return memory;
  };
  // Event: a message comes eagerly though its CTS had left, and nobody says that this one was read.
  {
    Stream stream(world, link);
    for (int pass = 0; pass < 70; pass++) world.progress(1);
    REQUIRE(world.side(1).engine->counters().ctsOut == kAhead);
    for (uint64_t i = 0; i < kAhead; i++) REQUIRE(stream.message(kSmall, i));
  }
  const std::byte* memory = closeOne(link);
  // Expect: the next comms write theirs from elsewhere, until a lane with such a write had been given up.
  Connection next = world.connect(0);
  CHECK(next.recv->staging().data() != memory);
  world.clock().advance(world.side(1).net->config().laneTimeout * 2);
  Connection later = world.connect(0);
  CHECK(later.recv->staging().data() == memory);
  // Expect: where nothing was written it is used again at once.
  const std::byte* unused = closeOne(next);
  CHECK(world.connect(0).recv->staging().data() == unused);
}

TEST_CASE("a CTS that was queued for a comm's use of a slot is not written for another comm's") {
  const Silence silence;
  for (uint64_t messages = 90; messages < 130; messages++) {
    INFO(messages << " messages");
    World world({});
    Connection link = world.connect(0), other = world.connect(0);
    Buffer idle(*link.recv, kSmall);
    Stream stream(world, link);
    (void)receive(*link.recv, idle, kSmall, 1);
    for (uint64_t i = 0; i < messages; i++) {
      REQUIRE(stream.message(kSmall, i));
      stream.post(kSmall);
    }
    for (uint64_t i = 0; i < kAhead; i++) REQUIRE(stream.message(kSmall, messages + i));
    // Event: the slots go to another comm, whose own messages come eagerly while the first one's CTS are
    // due.
    Stream second(world, other);
    for (uint64_t i = 0; i < 100; i++) {
      REQUIRE(second.message(kSmall, i));
      second.post(kSmall);
    }
    // Expect: the one CTS that the first has to write, and then those of the second.
    CHECK(world.side(1).engine->counters().ctsOut == 1);
    for (int pass = 0; pass < 70; pass++) world.progress(1);
    CHECK(world.side(1).engine->counters().ctsOut == 1 + kAhead);
    for (uint64_t i = 0; i < kAhead; i++) REQUIRE(second.message(kSmall, i));
    second.post(kLarge);
    REQUIRE(second.message(kLarge, 7));
    CHECK_FALSE(link.recv->failed());
    CHECK_FALSE(link.send->failed());
  }
}
