// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <cstring>
#include <vector>

#include "src/base/log.h"
#include "src/core/posting.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Messages that leave before their receive is known, over a fabric whose receiving end says where they land.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

constexpr size_t kLarge = 100'000;

WorldOptions directOptions(size_t pieceBytes = 0) {
  WorldOptions options;
  for (auto& transport : options.transports) {
    loop::LoopOptions fabric;
    fabric.messages = true;
    fabric.landing = loop::Landing::whenPolled;
    fabric.delivery = Delivery::accepted;
    fabric.pieceBytes = pieceBytes;
    fabric.piecesPerPoll = 1;
    fabric.announceClose = true;
    transport = loop::makeTransport(fabric);
  }
  return options;
}

Posted receive(RecvCommImpl& comm, Buffer& buffer, size_t bytes, int tag) {
  const ReceiveSpec spec{buffer.data(), bytes, tag, buffer.handle(), nullptr};
  return comm.irecv(std::span(&spec, 1));
}

Posted send(SendCommImpl& comm, Buffer& buffer, size_t bytes, int tag) {
  return comm.isend(buffer.data(), bytes, tag, buffer.handle(), nullptr);
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

const EngineCounters& countersOf(World& world, int side) {
  return world.side(side).engine->counters();
}

}  // namespace

TEST_CASE("a large message leaves before its receive is known, and waits in early memory") {
  World world(directOptions());
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge), to(*link.recv, kLarge);
  fillPattern(from.data(), kLarge, 1);

  const Posted sent = send(*link.send, from, kLarge, 3);
  REQUIRE(sent.request);
  CHECK(finished(world, *link.send, sent.request));
  world.pump(3);
  CHECK(countersOf(world, 1).directEarly == 1);

  const Posted got = receive(*link.recv, to, kLarge, 3);
  REQUIRE(got.request);
  int size = 0;
  CHECK(link.recv->test(got.request, &size).done);  // it was filled as it was posted
  CHECK(size == static_cast<int>(kLarge));
  CHECK(firstMismatch(to.data(), kLarge, 1) == kLarge);
  CHECK(countersOf(world, 1).ctsOut == 0);
}

TEST_CASE("a message whose receive is posted lands in it without a copy and without a CTS") {
  World world(directOptions());
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge), to(*link.recv, kLarge);
  for (uint64_t k = 0; k < 20; k++) {
    fillPattern(from.data(), kLarge, k);
    const Posted got = receive(*link.recv, to, kLarge, 5);
    REQUIRE(got.request);
    const Posted sent = send(*link.send, from, kLarge, 5);
    REQUIRE(sent.request);
    int size = 0;
    CHECK(finished(world, *link.recv, got.request, &size));
    CHECK(finished(world, *link.send, sent.request));
    CHECK(firstMismatch(to.data(), kLarge, k) == kLarge);
  }
  CHECK(countersOf(world, 1).directIn == 20);
  CHECK(countersOf(world, 1).directEarly == 0);
  CHECK(countersOf(world, 1).ctsOut == 0);
}

TEST_CASE("a receive that is posted while its message comes is filled when the last byte is here") {
  World world(directOptions(20'000));
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge), to(*link.recv, kLarge);
  fillPattern(from.data(), kLarge, 4);
  const Posted sent = send(*link.send, from, kLarge, 3);
  REQUIRE(sent.request);
  world.progress(1);  // its header is here, and a piece of five
  const Posted got = receive(*link.recv, to, kLarge, 3);
  REQUIRE(got.request);
  CHECK_FALSE(link.recv->test(got.request, nullptr).done);
  CHECK(link.recv->describe().waits.size() == 1);
  int size = 0;
  CHECK(finished(world, *link.recv, got.request, &size));
  CHECK(finished(world, *link.send, sent.request));
  CHECK(firstMismatch(to.data(), kLarge, 4) == kLarge);
}

TEST_CASE("what is above the window waits for its CTS, and nothing is lost in between") {
  WorldOptions options = directOptions();
  options.config.windowKib = 256;
  World world(std::move(options));
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge);
  std::vector<Request*> sends;
  for (;;) {
    fillPattern(from.data(), kLarge, 0);
    const Posted sent = send(*link.send, from, kLarge, 1);
    REQUIRE(sent.ok);
    if (!sent.request) break;
    sends.push_back(sent.request);
    world.pump();
    REQUIRE(sends.size() < 10);
  }
  CHECK(sends.size() == 2);  // as many as 256 KiB hold
  for (Request* request : sends) CHECK(finished(world, *link.send, request));

  Buffer to(*link.recv, kLarge);
  for (int i = 0; i < 2; i++) {
    const Posted got = receive(*link.recv, to, kLarge, 1);
    REQUIRE(got.request);
    CHECK(finished(world, *link.recv, got.request));
    CHECK(firstMismatch(to.data(), kLarge, 0) == kLarge);
  }
  world.pump(3);
  const Posted again = send(*link.send, from, kLarge, 1);  // the window is free again
  REQUIRE(again.request);
  CHECK(finished(world, *link.send, again.request));
  CHECK(countersOf(world, 0).directOut == 3);

  Buffer much(*link.send, 400'000), room(*link.recv, 400'000);
  fillPattern(much.data(), 400'000, 9);
  REQUIRE_FALSE(send(*link.send, much, 400'000, 2).request);  // more than any window
  const Posted got = receive(*link.recv, room, 400'000, 2);
  REQUIRE(got.request);
  world.pump(100);
  const Posted sent = send(*link.send, much, 400'000, 2);
  REQUIRE(sent.request);
  CHECK(finished(world, *link.recv, got.request));
  CHECK(finished(world, *link.send, sent.request));
  CHECK(firstMismatch(room.data(), 400'000, 9) == 400'000);
}

// By its CTS, which is held back while messages of its own tag are expected to come ahead of theirs.
TEST_CASE("a large message is cleared to send while small ones of another tag keep coming") {
  const bool direct = GENERATE(true, false);
  CAPTURE(direct);
  constexpr size_t kMuch = 400'000;
  WorldOptions options;
  if (direct) options = directOptions();
  options.config.windowKib = 256;
  World world(std::move(options));
  Connection link = world.connect(0);
  Buffer little(*link.send, 8), word(*link.recv, 8), much(*link.send, kMuch), room(*link.recv, kMuch);
  fillPattern(much.data(), kMuch, 9);
  world.pump();
  const auto carryWord = [&] {
    const Posted got = receive(*link.recv, word, 8, 1), sent = send(*link.send, little, 8, 1);
    REQUIRE((got.request && sent.request));
    REQUIRE(finished(world, *link.recv, got.request));
    REQUIRE(finished(world, *link.send, sent.request));
  };
  for (int i = 0; i < 20; i++) carryWord();
  const Posted got = receive(*link.recv, room, kMuch, 2);
  REQUIRE(got.request);
  Request* sent = nullptr;
  for (int i = 0; i < 200 && !sent; i++) {
    carryWord();
    sent = send(*link.send, much, kMuch, 2).request;
  }
  REQUIRE(sent);
  CHECK(finished(world, *link.recv, got.request));
  CHECK(finished(world, *link.send, sent));
  CHECK(firstMismatch(room.data(), kMuch, 9) == kMuch);
}

namespace {

// Sends so many words of 8 bytes, of two tags in turn, to a receiver that has posted nothing.
void sendWords(World& world, SendCommImpl& comm, uint64_t count) {
  Buffer word(comm, sizeof count);
  for (uint64_t i = 0; i < count; i++) {
    std::memcpy(word.data(), &i, sizeof i);
    const Posted sent = send(comm, word, sizeof i, static_cast<int>(i % 2));
    REQUIRE(sent.request);
    REQUIRE(finished(world, comm, sent.request));
    world.pump();
  }
}

}  // namespace

TEST_CASE("more small messages than 16 bits can count wait for their receives, in bounded memory") {
  constexpr uint64_t kCount = 70'000;
  constexpr size_t kWindow = size_t{64} << 20;
  WorldOptions options = directOptions();
  options.config.eagerMaxBytes = 0;
  options.config.windowKib = kWindow >> 10;
  options.config.windowPoolMib = 16 * 64;
  World world(std::move(options));
  Connection link = world.connect(0);
  const mem::Heap& early = world.side(1).engine->earlyMemory();
  sendWords(world, *link.send, kCount);
  CHECK(countersOf(world, 1).directEarly == kCount);
  CHECK(early.mappedBytes() <= kWindow);

  Buffer to(*link.recv, sizeof(uint64_t));
  for (uint64_t i = 0; i < kCount; i++) {
    const Posted got = receive(*link.recv, to, sizeof i, static_cast<int>(i % 2));
    REQUIRE(got.request);
    REQUIRE(link.recv->test(got.request, nullptr).done);
    REQUIRE(std::memcmp(to.data(), &i, sizeof i) == 0);
  }
}

TEST_CASE("messages of whatever sizes come early in no more memory than the windows, which is given back") {
  WorldOptions options = directOptions();
  options.config.eagerMaxBytes = 0;
  options.config.windowKib = 1024;
  options.config.windowPoolMib = 16;
  World world(std::move(options));
  Connection link = world.connect(0);
  const mem::Heap& early = world.side(1).engine->earlyMemory();
  const uint64_t pool = uint64_t{16} << 20;
  for (size_t bytes = 200; bytes < 500'000; bytes += bytes / 4) {
    Buffer from(*link.send, bytes), to(*link.recv, bytes);
    int sent = 0;
    for (; sent < 20; sent++) {
      const Posted left = send(*link.send, from, bytes, 1);
      if (!left.request) break;
      REQUIRE(finished(world, *link.send, left.request));
      world.pump(100);
    }
    REQUIRE(sent > 0);
    for (int i = 0; i < sent; i++)
      REQUIRE(finished(world, *link.recv, receive(*link.recv, to, bytes, 1).request));
    world.pump(10);
    REQUIRE(early.mappedBytes() <= pool);
  }
  CHECK(countersOf(world, 1).directEarly > 0);
  CHECK(early.mappedBytes() > 0);
  for (int i = 0; i < 10; i++) world.watch(1);
  CHECK(early.mappedBytes() == 0);
}

TEST_CASE("a comm whose receives are never posted holds up no other one") {
  WorldOptions options = directOptions();
  options.config.windowKib = 256;
  World world(std::move(options));
  std::vector<Connection> links;
  for (int i = 0; i < 16; i++) links.push_back(world.connect(0));
  Buffer stuck(*links[0].send, kLarge);
  while (send(*links[0].send, stuck, kLarge, 1).request) world.pump();
  for (int round = 0; round < 5; round++) {
    for (size_t i = 1; i < links.size(); i++) {
      Buffer from(*links[i].send, kLarge), to(*links[i].recv, kLarge);
      fillPattern(from.data(), kLarge, i);
      const Posted sent = send(*links[i].send, from, kLarge, 1);
      REQUIRE(sent.request);
      const Posted got = receive(*links[i].recv, to, kLarge, 1);
      REQUIRE(got.request);
      CHECK(finished(world, *links[i].recv, got.request));
      CHECK(finished(world, *links[i].send, sent.request));
      CHECK(firstMismatch(to.data(), kLarge, i) == kLarge);
    }
  }
  CHECK(links[0].recv->describe().unmatched.size() == 1);
}

TEST_CASE("both ends may fill their windows at once") {
  WorldOptions options = directOptions();
  options.config.windowKib = 256;
  World world(std::move(options));
  Connection there = world.connect(0), back = world.connect(1);
  Connection* links[] = {&there, &back};
  std::vector<std::unique_ptr<Buffer>> kept;
  std::vector<std::pair<CommBase*, Request*>> sends;
  for (Connection* link : links) {
    for (uint64_t k = 0; k < 2; k++) {
      auto& from = kept.emplace_back(std::make_unique<Buffer>(*link->send, kLarge));
      fillPattern(from->data(), kLarge, k);
      const Posted sent = send(*link->send, *from, kLarge, 1);
      REQUIRE(sent.request);
      sends.emplace_back(link->send.get(), sent.request);
    }
  }
  for (auto& [comm, request] : sends) CHECK(finished(world, *comm, request));
  for (Connection* link : links) {
    Buffer to(*link->recv, kLarge);
    for (uint64_t k = 0; k < 2; k++) {
      const Posted got = receive(*link->recv, to, kLarge, 1);
      REQUIRE(got.request);
      CHECK(finished(world, *link->recv, got.request));
      CHECK(firstMismatch(to.data(), kLarge, k) == kLarge);
    }
  }
}

TEST_CASE("messages of one tag fill its receives in their order, whichever way each goes") {
  WorldOptions options = directOptions(30'000);
  options.config.windowKib = 256;
  World world(std::move(options));
  Connection link = world.connect(0);
  const size_t sizes[] = {100, 60'000, 300'000, 0, 90'000, 8, 200'000, 40'000};
  std::vector<std::unique_ptr<Buffer>> from, to;
  std::vector<Request*> sends, receives;
  size_t next = 0;
  for (size_t i = 0; i < std::size(sizes); i++) {
    from.push_back(std::make_unique<Buffer>(*link.send, std::max<size_t>(sizes[i], 1)));
    to.push_back(std::make_unique<Buffer>(*link.recv, 300'000));
    fillPattern(from[i]->data(), sizes[i], i);
  }
  for (int pass = 0; pass < 3000 && (next < std::size(sizes) || receives.size() < std::size(sizes)); pass++) {
    if (next < std::size(sizes)) {
      const Posted sent = send(*link.send, *from[next], sizes[next], 7);
      REQUIRE(sent.ok);
      if (sent.request) sends.push_back(sent.request), next++;
    }
    if (pass % 40 == 39 && receives.size() < std::size(sizes)) {
      const Posted got = receive(*link.recv, *to[receives.size()], 300'000, 7);
      REQUIRE(got.request);
      receives.push_back(got.request);
    }
    world.pump();
  }
  REQUIRE(next == std::size(sizes));
  for (size_t i = 0; i < std::size(sizes); i++) {
    int size = -1;
    CHECK(finished(world, *link.recv, receives[i], &size));
    CHECK(size == static_cast<int>(sizes[i]));
    CHECK(firstMismatch(to[i]->data(), sizes[i], i) == sizes[i]);
    CHECK(finished(world, *link.send, sends[i]));
  }
}

TEST_CASE("a direct message larger than its receive ends the comm in words, and writes nothing") {
  const bool early = GENERATE(true, false);
  World world(directOptions());
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge), to(*link.recv, kLarge);
  fillPattern(from.data(), kLarge, 3);
  if (!early) REQUIRE(receive(*link.recv, to, kLarge - 1, 4).request);
  REQUIRE(send(*link.send, from, kLarge, 4).request);
  world.pump(5);
  if (early) (void)receive(*link.recv, to, kLarge - 1, 4);
  world.pump(5);
  CHECK(link.recv->failed());
  CHECK(link.send->failed());
  CHECK(link.recv->stickyError().message().find("tag 4") != std::string::npos);
  CHECK(to.data()[0] == std::byte{0});
}

TEST_CASE("closing a receiver while messages come leaves nothing behind, and harms no other comm") {
  World world(directOptions(10'000));
  Connection other = world.connect(0);
  {
    Connection link = world.connect(0);
    Buffer from(*link.send, kLarge);
    const Posted sent = send(*link.send, from, kLarge, 1);
    REQUIRE(sent.request);
    world.pump(2);  // some of it is here
    link.recv->close();
    world.pump(30);
  }
  world.pump(10);
  Buffer from(*other.send, kLarge), to(*other.recv, kLarge);
  fillPattern(from.data(), kLarge, 2);
  const Posted got = receive(*other.recv, to, kLarge, 1);
  const Posted sent = send(*other.send, from, kLarge, 1);
  REQUIRE(got.request);
  REQUIRE(sent.request);
  CHECK(finished(world, *other.recv, got.request));
  CHECK(finished(world, *other.send, sent.request));
  CHECK(firstMismatch(to.data(), kLarge, 2) == kLarge);
}

TEST_CASE("a window is back in the pool when its comm has gone") {
  WorldOptions options = directOptions();
  options.config.windowPoolMib = 2;
  World world(std::move(options));
  for (int i = 0; i < 20; i++) {
    Connection link = world.connect(0);
    Buffer from(*link.send, kLarge);
    REQUIRE(send(*link.send, from, kLarge, 1).request);
    world.pump(5);
    link.recv->close();
    world.pump(5);
  }
}

TEST_CASE("where the pool has nothing left messages wait for their CTS") {
  WorldOptions options = directOptions();
  options.config.windowPoolMib = 0;
  World world(std::move(options));
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge), to(*link.recv, kLarge);
  CHECK_FALSE(send(*link.send, from, kLarge, 1).request);
  const Posted got = receive(*link.recv, to, kLarge, 1);
  REQUIRE(got.request);
  world.pump(3);
  const Posted sent = send(*link.send, from, kLarge, 1);
  REQUIRE(sent.request);
  CHECK(finished(world, *link.recv, got.request));
  CHECK(finished(world, *link.send, sent.request));
}

namespace {

void silent(LogLevel, const char*, int, const char*) {}  // errors are what is provoked

// A message of this label and so many bytes, from whoever has `comm`, past all accounts.
void forge(World& world, int side, CommBase& comm, Buffer& from, size_t bytes, const MessageLabel& label) {
  {
    EngineEntry in(*world.side(side).engine, EngineEntry::wait);
    Lane& lane = comm.peering().lane(0);
    Work work;
    work.op = Opcode::message;
    work.imm = label.imm;
    work.remote = label.words;
    work.local = from.data();
    work.length = bytes;
    work.memory = from.handle()->region->rail(0);
    work.context = workContext(WorkKind::unsignaled, 0, comm.peering().number(), 0);
    work.unsignaled = true;
    comm.peering().submit(lane, work);
  }
  for (int i = 0; i < 50; i++) {
    world.pump();
    world.clock().advance(std::chrono::milliseconds(20));
    for (int of = 0; of < 2; of++) world.watch(of);
  }
}

}  // namespace

TEST_CASE("a sender that claims more than its window is refused in words") {
  setLogSink(silent);
  WorldOptions options = directOptions();
  options.config.windowKib = 64;
  World world(std::move(options));
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge), to(*link.recv, 8);
  REQUIRE(receive(*link.recv, to, 8, 1).request);
  forge(world, 0, *link.send, from, kLarge, labelOf(DirectHeader{link.recv->number(), 1, 0, 0}));
  REQUIRE(link.recv->failed());
  CHECK(link.recv->stickyError().message().find("more than the window that it was given") !=
        std::string::npos);
  setLogSink(nullptr);
}

TEST_CASE("a message that comes twice, and one for the wrong end, end the peering in words") {
  setLogSink(silent);
  const bool twice = GENERATE(true, false);
  World world(directOptions());
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge), to(*link.recv, 8);
  if (twice) {
    const MessageLabel label = labelOf(DirectHeader{link.recv->number(), 1, 0, 0});
    forge(world, 0, *link.send, from, 100, label);
    forge(world, 0, *link.send, from, 100, label);
  } else {
    forge(world, 0, *link.send, from, 0, labelOf(WindowReturn{link.recv->number(), 100}));
  }
  (void)receive(*link.recv, to, 8, 2);
  world.pump(5);
  REQUIRE(link.recv->failed());
  CHECK(link.recv->stickyError().message().find(twice ? "sent before" : "wrong end") != std::string::npos);
  setLogSink(nullptr);
}

TEST_CASE("a receiver that gives back more than was used is refused in words") {
  setLogSink(silent);
  World world(directOptions());
  Connection link = world.connect(0);
  Buffer from(*link.recv, 8), message(*link.send, 8);
  forge(world, 1, *link.recv, from, 0, labelOf(WindowReturn{link.send->number(), 4096}));
  (void)send(*link.send, message, 8, 1);
  world.pump(5);
  REQUIRE(link.send->failed());
  CHECK(link.send->stickyError().message().find("more of a window than was used") != std::string::npos);
  setLogSink(nullptr);
}

TEST_CASE("a message for a connection that is closed is read and dropped") {
  World world(directOptions());
  Connection link = world.connect(0);
  Buffer from(*link.send, kLarge), to(*link.recv, kLarge);
  forge(world, 0, *link.send, from, kLarge, labelOf(DirectHeader{9999, 1, 0, 0}));
  CHECK(countersOf(world, 1).staleNotes == 1);
  fillPattern(from.data(), kLarge, 6);
  const Posted got = receive(*link.recv, to, kLarge, 1);
  const Posted sent = send(*link.send, from, kLarge, 1);
  REQUIRE(sent.request);
  CHECK(finished(world, *link.recv, got.request));
  CHECK(finished(world, *link.send, sent.request));
  CHECK(firstMismatch(to.data(), kLarge, 6) == kLarge);
}
