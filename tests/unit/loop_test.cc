// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>
#include <thread>

#include "providers/loop/transport.h"
#include "tests/support/catch.h"

using namespace weft;
using namespace weft::loop;

namespace {

// One end: a device, a Queue, a lane and 64 KiB of registered memory.
struct End {
  explicit End(const LoopOptions& options = {}, QueueDepths depths = {}, int rail = 0) {
    LoopTransport transport(options);
    device = transport.open((*transport.discover())[static_cast<size_t>(rail)]).take();
    queue = device->openQueue(depths).take();
    lane = queue->openEndpoint().take();
    memory = device->registerMemory({.address = bytes.data(), .length = bytes.size()}).take();
  }

  std::vector<Completion> poll() {
    std::vector<Completion> out(64);
    out.resize(queue->poll(out));
    return out;
  }
  Work work(End& to, Opcode op, size_t from, size_t at, size_t length) {
    Work w;
    w.op = op;
    w.local = bytes.data() + from;
    w.length = length;
    w.memory = memory.get();
    w.remote = *lane->import(to.memory->blob());
    w.remoteOffset = at;
    return w;
  }
  size_t post(const Work& work) { return lane->post({&work, 1}); }

  std::vector<uint8_t> bytes = std::vector<uint8_t>(65536);
  std::shared_ptr<Device> device;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Endpoint> lane;
  std::unique_ptr<Memory> memory;
};

void join(End& a, End& b) {
  REQUIRE(a.lane->connect(b.lane->address()));
  REQUIRE(b.lane->connect(a.lane->address()));
  for (End* end : {&a, &b}) {
    const auto done = end->poll();
    REQUIRE(done.size() == 1);
    REQUIRE(done[0].kind == CompletionKind::connected);
    REQUIRE(done[0].ok);
  }
}

}  // namespace

TEST_CASE("a friendly write lands in post, notifies with imm and length, and completes") {
  End a, b;
  join(a, b);
  a.bytes[5] = 42;
  Work work = a.work(b, Opcode::writeNotify, 5, 100, 1);
  work.imm = 77;
  work.context = 9;
  REQUIRE(a.post(work) == 1);
  CHECK(b.bytes[100] == 42);
  const auto sent = a.poll();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].kind == CompletionKind::sent);
  CHECK(sent[0].ok);
  CHECK(sent[0].context == 9);
  CHECK(sent[0].source == a.lane.get());
  const auto notified = b.poll();
  REQUIRE(notified.size() == 1);
  CHECK(notified[0].imm == 77);
  CHECK(notified[0].length == 1);
  CHECK(notified[0].source == b.lane.get());
}

TEST_CASE("with landing=poll nothing lands before the target polls") {
  LoopOptions options;
  options.landing = Landing::whenPolled;
  options.delivery = GENERATE(Delivery::accepted, Delivery::selectable, Delivery::always);
  End a(options), b(options);
  join(a, b);
  a.bytes[0] = 1;
  Work plain = a.work(b, Opcode::write, 0, 0, 1);
  REQUIRE(a.post(plain) == 1);
  const bool early = options.delivery != Delivery::always;
  CHECK(a.poll().size() == (early ? 1 : 0));
  a.bytes[0] = early ? 99 : 1;  // the buffer is ours again
  CHECK(b.bytes[0] == 0);
  b.poll();
  CHECK(b.bytes[0] == 1);
  CHECK(a.poll().size() == (early ? 0 : 1));
  plain.delivered = true;
  REQUIRE(a.post(plain) == 1);
  CHECK(a.poll().size() == (options.delivery == Delivery::accepted ? 1 : 0));
  b.poll();
}

TEST_CASE("a write that leaves the region fails, touches nothing and breaks the lane") {
  LoopOptions options;
  options.landing = GENERATE(Landing::atOnce, Landing::whenPolled);
  End a(options), b(options);
  join(a, b);
  a.bytes[0] = 1;
  Work outside = a.work(b, Opcode::write, 0, 65533, 4);
  const Work inside = a.work(b, Opcode::write, 0, 0, 1);
  SECTION("past the end") {}
  SECTION("far away") {
    outside.remoteOffset = ~uint64_t{0} - 1;
  }
  SECTION("bad key") {
    outside.remote.key ^= 0x500;
  }
  SECTION("memory given back") {
    b.memory.reset();
  }
  REQUIRE(a.post(outside) == 1);
  b.poll();
  const auto failed = a.poll();
  REQUIRE(failed.size() == 1);
  CHECK_FALSE(failed[0].ok);
  CHECK(a.queue->explain(failed[0]).find("not registered") != std::string::npos);
  CHECK(b.bytes == std::vector<uint8_t>(65536));
  REQUIRE(a.post(inside) == 1);
  const auto after = a.poll();
  REQUIRE(after.size() == 1);
  CHECK_FALSE(after[0].ok);
  CHECK(b.bytes[0] == 0);
}

TEST_CASE("memory of another rail cannot be reached") {
  LoopOptions options;
  options.rails = 2;
  End a(options), b(options), other(options, {}, 1);
  join(a, b);
  Work work = a.work(other, Opcode::write, 0, 0, 1);
  REQUIRE(a.post(work) == 1);
  const auto failed = a.poll();
  REQUIRE(failed.size() == 1);
  CHECK_FALSE(failed[0].ok);
}

TEST_CASE("pieces land shuffled over several polls and the notification comes last") {
  LoopOptions options;
  options.landing = Landing::whenPolled;
  options.pieceBytes = 1000;
  options.piecesPerPoll = 3;
  options.seed = GENERATE(1u, 2u, 3u);
  End a(options), b(options);
  join(a, b);
  for (size_t i = 0; i < 20000; i++) a.bytes[i] = static_cast<uint8_t>(1 + i % 251);
  REQUIRE(a.post(a.work(b, Opcode::writeNotify, 0, 7, 20000)) == 1);
  int polls = 1;
  while (b.poll().empty()) REQUIRE(polls++ < 100);
  CHECK(polls == 7);
  CHECK(std::memcmp(a.bytes.data(), b.bytes.data() + 7, 20000) == 0);
  CHECK(a.poll().size() == 1);
}

TEST_CASE("pieces land neither in order nor in a turned order") {
  LoopOptions options;
  options.landing = Landing::whenPolled;
  options.pieceBytes = 100;
  options.piecesPerPoll = 1;
  size_t jumps = 0;
  for (options.seed = 1; options.seed <= 5; options.seed++) {
    End a(options), b(options);
    join(a, b);
    for (size_t i = 0; i < 1000; i++) a.bytes[i] = 1;
    REQUIRE(a.post(a.work(b, Opcode::writeNotify, 0, 0, 1000)) == 1);
    size_t last = 10;
    std::vector<bool> here(10);
    for (int poll = 0; poll < 10; poll++) {
      CHECK(b.poll().size() == (poll == 9 ? 1 : 0));
      for (size_t piece = 0; piece < 10; piece++) {
        if (here[piece] || b.bytes[piece * 100 + 99] == 0) continue;
        here[piece] = true;
        jumps += last < 10 && piece != (last + 1) % 10;
        last = piece;
      }
    }
    CHECK(std::count(here.begin(), here.end(), true) == 10);
  }
  CHECK(jumps >= 9);
}

TEST_CASE("shuffled works land out of order, the same way for the same seed") {
  const auto order = [](uint64_t seed) {
    LoopOptions options;
    options.landing = Landing::whenPolled;
    options.shuffle = true;
    options.seed = seed;
    End a(options), b(options);
    join(a, b);
    for (uint32_t i = 0; i < 16; i++) {
      Work work = a.work(b, Opcode::writeNotify, 0, i, 1);
      work.imm = i;
      REQUIRE(a.post(work) == 1);
    }
    std::vector<uint32_t> imms;
    for (const Completion& c : b.poll()) imms.push_back(c.imm);
    REQUIRE(imms.size() == 16);
    CHECK_FALSE(std::is_sorted(imms.begin(), imms.end()));
    return imms;
  };
  CHECK(order(5) == order(5));
  CHECK(order(5) != order(6));
}

TEST_CASE("a rail's speed limits what lands in a poll") {
  LoopOptions options;
  options.landing = Landing::whenPolled;
  options.bytesPerPoll = {1000};
  End a(options), b(options);
  join(a, b);
  REQUIRE(a.post(a.work(b, Opcode::writeNotify, 0, 0, 10000)) == 1);
  int polls = 1;
  while (b.poll().empty()) REQUIRE(polls++ < 100);
  CHECK(polls == 10);
}

TEST_CASE("depths are limits: sends come back, notifications overrun") {
  LoopOptions options;
  options.stats = std::make_shared<LoopStats>();
  options.landing = GENERATE(Landing::atOnce, Landing::whenPolled);
  End a(options, {.sends = 4, .notifications = 8}), b(options, {.sends = 4, .notifications = 2});
  join(a, b);
  const std::vector<Work> six(6, a.work(b, Opcode::write, 0, 0, 1));
  CHECK(a.lane->post(six) == 4);
  CHECK(a.lane->post(six) == 0);
  b.poll();
  CHECK(a.poll().size() == 4);
  const std::vector<Work> three(3, a.work(b, Opcode::writeNotify, 0, 0, 1));
  CHECK(options.stats->rails[0].overruns == 0);
  CHECK(a.lane->post(three) == 3);
  CHECK(options.stats->rails[0].overruns == 1);
  CHECK(b.poll().size() == (options.deferred() ? 0 : 2));  // breaking the lane took the waiting ones back
  size_t failed = 0;
  for (const Completion& c : a.poll()) failed += !c.ok;
  CHECK(failed == (options.deferred() ? 3 : 1));
}

TEST_CASE("retire takes back what has not landed and says so last") {
  LoopOptions options;
  options.landing = Landing::whenPolled;
  End a(options), b(options);
  join(a, b);
  a.bytes[0] = 1;
  REQUIRE(a.post(a.work(b, Opcode::write, 0, 0, 1)) == 1);
  a.lane->retire();
  const auto done = a.poll();
  REQUIRE(done.size() == 2);
  CHECK_FALSE(done[0].ok);
  CHECK(done[1].kind == CompletionKind::retired);
  b.poll();
  CHECK(b.bytes[0] == 0);
  CHECK(a.post(a.work(b, Opcode::write, 0, 0, 1)) == 0);
}

TEST_CASE("a destroyed lane fails the peer's writes, and is announced where asked for") {
  LoopOptions options;
  options.announceClose = GENERATE(false, true);
  End a(options), b(options);
  join(a, b);
  b.lane.reset();
  const auto news = a.poll();
  CHECK(news.size() == (options.announceClose ? 1 : 0));
  if (!news.empty()) CHECK(news[0].kind == CompletionKind::broken);
  REQUIRE(a.post(a.work(b, Opcode::write, 0, 0, 1)) == 1);
  const auto failed = a.poll();
  REQUIRE(failed.size() == 1);
  CHECK_FALSE(failed[0].ok);
}

TEST_CASE("two threads exchange without locks between their Queues") {
  LoopOptions options;
  options.landing = GENERATE(Landing::atOnce, Landing::whenPolled);
  End a(options), b(options);
  join(a, b);
  const auto run = [](End& self, End& other, size_t half) {
    uint32_t sent = 0, got = 0;
    while (sent < 2000 || got < 2000) {
      if (sent < 2000 && sent < got + 100) {
        Work work = self.work(other, Opcode::writeNotify, half, half + sent % 64, 16);
        work.imm = sent;
        sent += static_cast<uint32_t>(self.post(work));
      }
      for (const Completion& c : self.poll()) got += c.kind == CompletionKind::notified;
    }
  };
  std::thread other([&] { run(b, a, 32768); });
  run(a, b, 0);
  other.join();
}

TEST_CASE("a lane and its memory may go while a peer on another thread still writes") {
  LoopOptions options;
  options.landing = GENERATE(Landing::atOnce, Landing::whenPolled);
  for (int round = 0; round < 20; round++) {
    End a(options);
    auto b = std::make_unique<End>(options);
    join(a, *b);
    Work work = a.work(*b, Opcode::writeNotify, 0, 0, 4096);
    std::thread closing([&] {
      for (int i = 0; i < round; i++) b->poll();
      b->memory.reset();
      b.reset();
    });
    bool failed = false;
    for (int i = 0; i < 1000000 && !failed; i++) {
      a.post(work);
      for (const Completion& c : a.poll()) failed |= !c.ok;
      if (options.deferred() && i > 100) break;  // nobody is there to report it
    }
    closing.join();
    CHECK((failed || options.deferred()));
    a.lane->retire();
    bool retired = false;
    for (int i = 0; i < 100 && !retired; i++)
      for (const Completion& c : a.poll()) retired |= c.kind == CompletionKind::retired;
    CHECK(retired);
  }
}

TEST_CASE("options are read from text and a bad one is named") {
  Config config;
  config.loopRails = 3;
  const auto plain = parseOptions("", config);
  REQUIRE(plain);
  CHECK(plain->rails == 3);
  const auto full =
      parseOptions("landing=poll,delivery=accepted,piece=4096,bytesPerPoll=100/200,seed=9", config);
  REQUIRE(full);
  CHECK(full->landing == Landing::whenPolled);
  CHECK(full->delivery == Delivery::accepted);
  CHECK(full->bytesPerPoll == std::vector<size_t>{100, 200});
  for (const char* text : {"lnding=poll", "landing=never", "seed=x", "seed", "rails=33", "sends=0",
                           "notifications=0", "shuffle=1"}) {
    const auto bad = parseOptions(text, config);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().code() == Code::config);
    CHECK(bad.error().detail().find(std::string(text).substr(0, 4)) != std::string::npos);
  }
}

namespace {

// Ends whose cards carry a byte a nanosecond, 1000 ns away from each other, and what they were told.
struct TimedEnds {
  explicit TimedEnds(size_t n) {
    for (size_t i = 0; i < n; i++) {
      LoopOptions options;
      options.landing = Landing::whenPolled;
      const CardSpeed speed{1.0, Nanoseconds(1000), Nanoseconds(100)};
      options.cards.push_back(
          std::make_shared<Card>(clock, speed, [this, i](TimePoint when) { told.emplace_back(i, when); }));
      ends.push_back(std::make_unique<End>(options));
    }
  }
  // From each of the others to the first.
  void joinNewLanes() {
    for (size_t i = 1; i < ends.size(); i++) {
      lanes.push_back(ends[0]->queue->openEndpoint().take());
      REQUIRE(lanes.back()->connect(ends[i]->lane->address()));
      REQUIRE(ends[i]->lane->connect(lanes.back()->address()));
      (void)ends[i]->poll();
    }
    (void)ends[0]->poll();
  }
  size_t notified() {
    size_t n = 0;
    for (const Completion& one : ends[0]->poll()) n += one.kind == CompletionKind::notified;
    return n;
  }
  TimePoint lastTold(size_t end) const {
    TimePoint last{};
    for (const auto& [of, when] : told)
      if (of == end) last = when;
    return last;
  }

  FakeClock clock;
  std::vector<std::pair<size_t, TimePoint>> told;
  std::vector<std::unique_ptr<End>> ends;
  std::vector<std::unique_ptr<Endpoint>> lanes;
};

}  // namespace

TEST_CASE("a work takes its card's time, and its sender hears of it later") {
  TimedEnds timed(2);
  timed.joinNewLanes();
  End& sender = *timed.ends[1];
  const TimePoint began = timed.clock.now();
  sender.bytes[7] = 42;
  REQUIRE(sender.post(sender.work(*timed.ends[0], Opcode::writeNotify, 0, 0, 5000)) == 1);
  const TimePoint due = began + Nanoseconds(1000 + 100 + 5000);
  CHECK(timed.lastTold(0) == due);
  timed.clock.advance(Nanoseconds(6099));
  CHECK(timed.notified() == 0);
  CHECK(timed.ends[0]->bytes[7] == 0);
  timed.clock.advance(Nanoseconds(1));
  CHECK(timed.notified() == 1);
  CHECK(timed.ends[0]->bytes[7] == 42);
  CHECK(timed.lastTold(1) == due + Nanoseconds(1000));
  CHECK(sender.poll().empty());
  timed.clock.advance(Nanoseconds(1000));
  CHECK(sender.poll().size() == 1);
}

TEST_CASE("senders to one receiver share its card") {
  TimedEnds timed(4);
  timed.joinNewLanes();
  for (size_t i = 1; i < 4; i++) {
    End& sender = *timed.ends[i];
    REQUIRE(sender.post(sender.work(*timed.ends[0], Opcode::writeNotify, 0, 0, 900)) == 1);
  }
  for (size_t came = 0; came < 3; came++) {
    timed.clock.advance(Nanoseconds(came == 0 ? 1999 : 999));
    CHECK(timed.notified() == 0);
    timed.clock.advance(Nanoseconds(1));
    CHECK(timed.notified() == 1);
  }
}

TEST_CASE("a sender that is busy elsewhere keeps no time free at its receiver") {
  TimedEnds timed(4);
  timed.joinNewLanes();
  End& busy = *timed.ends[1];
  auto third = timed.ends[3]->queue->openEndpoint().take();
  auto there = busy.queue->openEndpoint().take();
  REQUIRE(there->connect(third->address()));
  REQUIRE(third->connect(there->address()));
  (void)busy.poll();
  const Work elsewhere = busy.work(*timed.ends[3], Opcode::write, 0, 0, 9900);
  REQUIRE(there->post({&elsewhere, 1}) == 1);
  REQUIRE(busy.post(busy.work(*timed.ends[0], Opcode::writeNotify, 0, 0, 900)) == 1);
  End& idle = *timed.ends[2];
  REQUIRE(idle.post(idle.work(*timed.ends[0], Opcode::writeNotify, 0, 0, 900)) == 1);
  timed.clock.advance(Nanoseconds(2000));
  CHECK(timed.notified() == 1);  // the idle one's
  timed.clock.advance(Nanoseconds(9999));
  CHECK(timed.notified() == 0);
  timed.clock.advance(Nanoseconds(1));
  CHECK(timed.notified() == 1);
}

TEST_CASE("large writes can leave their bytes where they are") {
  LoopOptions options;
  options.landing = Landing::whenPolled;
  options.mostCopied = 100;
  End a(options), b(options);
  join(a, b);
  a.bytes.assign(a.bytes.size(), 9);
  REQUIRE(a.post(a.work(b, Opcode::writeNotify, 0, 0, 100)) == 1);
  REQUIRE(a.post(a.work(b, Opcode::writeNotify, 0, 1000, 101)) == 1);
  CHECK(b.poll().size() == 2);
  CHECK(b.bytes[99] == 9);
  CHECK(b.bytes[1000] == 0);
  REQUIRE(a.post(a.work(b, Opcode::writeNotify, 0, b.bytes.size() - 50, 101)) == 1);  // leaves the memory
  (void)b.poll();
  const auto done = a.poll();
  CHECK(std::count_if(done.begin(), done.end(), [](const Completion& one) { return !one.ok; }) == 1);
}
