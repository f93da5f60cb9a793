// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <optional>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Placed messages between two engines: where they land, what their receives cost, and when memory that was
// opened for them is free of them.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

constexpr int kTag = 4;
constexpr size_t kMost = 1 << 20;
constexpr uint32_t kNumber = 7;  // of the memory that is opened

// A connection whose receiver has opened a piece in the middle of its memory.
struct Opened {
  explicit Opened(int rails = 1, bool opens = true) : world(of(rails)), link(world.connect(0)) {
    world.clock().whileSleeping = [this] { world.pump(); };
    from.emplace(*link.send, 2 * kMost);
    to.emplace(*link.recv, 2 * kMost);
    fillPattern(from->data(), from->size(), 1);
    if (opens) open();
  }
  static WorldOptions of(int rails) {
    WorldOptions options;
    options.rails[0] = options.rails[1] = rails;
    return options;
  }
  void open() {
    REQUIRE(link.recv->openMemory(to->handle(), to->data() + 64, kMost, kNumber));
    post();
    world.pump(3);
  }
  void post() {
    while (Request* request = link.recv->irecvPlaced(kMost, kTag).request) receives.push_back(request);
  }
  Posted place(size_t bytes, uint64_t offset) {
    return link.send->isendPlaced(from->data(), bytes, kTag, from->handle(), kNumber, offset);
  }
  // The size of the oldest one, whose receive is not posted again. Negative: it is not here.
  int taken() {
    int size = -1;
    if (!core::test(receives.front(), &size).done) return -1;
    receives.erase(receives.begin());
    return size;
  }
  uint64_t ctsWrites() { return world.side(1).engine->counters().ctsWrites; }

  World world;
  Connection link;
  std::optional<Buffer> from, to;
  std::vector<Request*> receives;
};

}  // namespace

TEST_CASE("placed messages land where their sender says, each in a receive") {
  for (const int rails : {1, 2}) {
    INFO(rails << " rails");
    Opened opened(rails);
    CHECK(opened.link.send->isOpen(kNumber));
    CHECK_FALSE(opened.link.send->isOpen(kNumber + 1));
    size_t offset = 1;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{300'000}, size_t{4096}}) {
      INFO(bytes << " bytes");
      Request* sending = opened.place(bytes, offset).request;
      REQUIRE(sending);
      opened.world.pump(5);
      CHECK(opened.taken() == static_cast<int>(bytes));
      CHECK(core::test(sending, nullptr).done);
      CHECK(firstMismatch(opened.to->data() + 64 + offset, bytes, 1) == bytes);
      CHECK(opened.to->data()[64 + offset + bytes] == std::byte{0});
      offset += bytes + 1;
    }
    CHECK_FALSE(opened.link.recv->failed());
  }
}

TEST_CASE("the CTS of placed messages leave half of them together") {
  Opened opened;
  CHECK(opened.receives.size() == kPlacedAtOnce);
  const uint64_t before = opened.ctsWrites();
  CHECK(before <= 3);
  for (uint32_t i = 0; i < 4 * kPlacedAtOnce; i++) {
    REQUIRE(opened.place(100, 0).request);
    opened.world.pump(3);
    REQUIRE(opened.taken() == 100);
    opened.post();
    opened.world.pump(3);
  }
  const uint64_t wraps = 2;  // the ring's end cuts a run
  CHECK(opened.ctsWrites() - before <= 8 + wraps);
}

TEST_CASE("a message is placed nowhere but in memory that was opened") {
  Opened opened;
  const Posted posted = opened.place(100, kMost - 99);
  CHECK_FALSE(posted.ok);
  CHECK(opened.link.send->stickyError().message().find("outside of the memory that was opened") !=
        std::string::npos);
  opened.world.pump(5);
  CHECK(firstMismatch(opened.to->data(), opened.to->size(), 0) < opened.to->size());
  for (size_t i = 0; i < opened.to->size(); i++) REQUIRE(opened.to->data()[i] == std::byte{0});
}

TEST_CASE("memory is shut when all is here that was placed before, and what comes later is empty") {
  Opened opened;
  REQUIRE(opened.place(1000, 0).request);
  REQUIRE(opened.place(1000, 1000).request);
  opened.link.recv->shutMemory(opened.to->handle());
  CHECK_FALSE(opened.link.recv->isShut(opened.to->handle()));
  opened.world.deliverMessages();
  CHECK_FALSE(opened.link.send->isOpen(kNumber));
  CHECK_FALSE(opened.link.recv->isShut(opened.to->handle()));  // nobody has looked for what came
  REQUIRE(opened.place(1000, 5000).request);
  opened.world.pump(5);
  CHECK(opened.link.recv->isShut(opened.to->handle()));
  CHECK(opened.taken() == 1000);
  CHECK(opened.taken() == 1000);
  CHECK(opened.taken() == 0);
  CHECK(firstMismatch(opened.to->data() + 64 + 1000, 1000, 1) == 1000);
  CHECK(opened.to->data()[64 + 5000] == std::byte{0});
  CHECK_FALSE(opened.link.recv->openMemory(opened.to->handle(), opened.to->data(), 1, kNumber));
}

// A later message into other memory may be here while an earlier one is not.
TEST_CASE("memory is not shut for messages that were placed elsewhere") {
  Opened opened;
  Buffer other(*opened.link.recv, kMost);
  REQUIRE(opened.link.recv->openMemory(other.handle(), other.data(), kMost, kNumber + 1));
  opened.world.pump(3);
  opened.link.recv->shutMemory(other.handle());
  opened.world.deliverMessages();
  CHECK(opened.link.recv->isShut(other.handle()));
  REQUIRE(opened.place(1000, 0).request);
  opened.world.pump(3);
  CHECK(opened.taken() == 1000);
  CHECK_FALSE(opened.link.recv->isShut(opened.to->handle()));
}

TEST_CASE("deregistering opened memory waits for what was placed in it, and the connection goes on") {
  Opened opened;
  REQUIRE(opened.place(kMost, 0).request);
  opened.to->release();
  CHECK(firstMismatch(opened.to->data() + 64, kMost, 1) == kMost);
  CHECK(opened.taken() == static_cast<int>(kMost));
  CHECK_FALSE(opened.link.recv->failed());
  CHECK_FALSE(opened.link.send->failed());
  exchange(opened.world, opened.link, 100'000, 3, 100, [&] { opened.world.pump(); });
}

TEST_CASE("the lanes of a sender that does not answer are cut before opened memory goes") {
  Opened opened;
  opened.world.dropMessages = true;
  opened.to->release();
  CHECK(opened.link.recv->failed());
  CHECK(opened.link.recv->peering().lanes().isFenced());
}

TEST_CASE("receives for placed messages may stand when the sender closes") {
  Opened opened;
  REQUIRE(opened.place(100, 0).request);
  opened.world.pump(5);
  opened.link.send->close();
  opened.world.pump(5);
  CHECK_FALSE(opened.link.recv->failed());
  CHECK(opened.taken() == 100);
  CHECK_FALSE(opened.link.recv->irecvPlaced(kMost, kTag).request);
  opened.to->release();
  CHECK_FALSE(opened.link.recv->failed());
  opened.link.recv->close();
  CHECK_FALSE(opened.link.recv->failed());
}

TEST_CASE("receives for placed messages may stand when the receiver closes") {
  Opened opened;
  REQUIRE(opened.place(100, 0).request);
  opened.world.pump(5);
  opened.link.recv->close();
  opened.world.pump(5);
  CHECK_FALSE(opened.link.send->failed());
}

TEST_CASE("a message that is not placed finds no room in a receive for one that is") {
  Opened opened;
  REQUIRE(opened.link.send->isend(opened.from->data(), 8, kTag, opened.from->handle(), nullptr).request);
  opened.world.pump(5);
  CHECK(opened.link.recv->failed());
  CHECK(opened.link.recv->stickyError().message().find("8 bytes sent by") != std::string::npos);
}

TEST_CASE("no more memory is opened than a quarter of the notifications allows") {
  Opened opened(1, false);
  Budget& budget = opened.world.side(1).engine->budget();
  uint32_t taken = 0;
  while (budget.takeStanding(1)) taken++;
  CHECK_FALSE(opened.link.recv->openMemory(opened.to->handle(), opened.to->data() + 64, kMost, kNumber));
  CHECK_FALSE(opened.link.recv->irecvPlaced(kMost, kTag).request);
  budget.giveBackStanding(taken);
  opened.open();
  CHECK(opened.link.send->isOpen(kNumber));
  opened.link.recv->close();
  uint32_t again = 0;
  while (budget.takeStanding(1)) again++;
  CHECK(again == taken);
}
