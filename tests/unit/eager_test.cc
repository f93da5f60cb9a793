// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <set>
#include <vector>

#include "src/core/eager_receiver.h"
#include "src/core/eager_sender.h"
#include "tests/support/catch.h"

// The two halves of eager messages, joined by credit records that land when the test lets them.
namespace weft::core {
namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kSlotBytes = 128;
constexpr uint32_t kNumber = 7;

struct Ends final : EagerSender::Source {
  Ends() {
    sender.open(kSlots, kSlotBytes, 96, kNumber, line.data());
    receiver.open(pool.data(), kSlots, kSlotBytes);
  }
  std::byte* takeStaging() override {
    asked++;
    return hasMemory ? staging.data() : nullptr;
  }
  // A message arrives in this slot, is read, and its slot is free again. True: credits are worth telling.
  bool deliver(int slot) {
    CHECK(receiver.hold(static_cast<uint32_t>(slot), sender.use(slot)));
    return receiver.free(static_cast<uint32_t>(slot));
  }
  void land(const CreditRecord& record) { std::memcpy(line.data(), &record, sizeof record); }

  std::vector<std::byte> line = std::vector<std::byte>(64);
  std::vector<std::byte> pool = std::vector<std::byte>(size_t{kSlots} * kSlotBytes);
  std::vector<std::byte> staging = std::vector<std::byte>(size_t{kSlots} * kSlotBytes);
  bool hasMemory = true;
  int asked = 0;
  EagerSender sender{*this};
  EagerReceiver receiver;
};

TEST_CASE("slots are taken until there is no credit, and again when the peer has told which are free") {
  Ends ends;
  for (int round = 0; round < 5; round++) {
    std::set<int> taken;
    for (uint32_t i = 0; i < kSlots; i++) taken.insert(ends.sender.takeSlot());
    CHECK(taken.size() == kSlots);
    CHECK(ends.sender.takeSlot() == -1);
    CHECK_FALSE(ends.sender.hasSlot());
    uint32_t told = 0;
    for (const int slot : taken) told += ends.deliver(slot);
    CHECK(told == kSlots / 2 + 1);  // from half of them on
    REQUIRE(ends.receiver.startCredit(false));
    ends.land(ends.receiver.record(kNumber));
    CHECK_FALSE(ends.receiver.creditLanded());
    CHECK(ends.sender.hasSlot());
  }
}

TEST_CASE("staging is taken with the first slot and not before; without it nothing leaves eagerly") {
  Ends ends;
  ends.hasMemory = false;
  CHECK(ends.sender.sends(96));
  CHECK_FALSE(ends.sender.sends(97));
  CHECK(ends.asked == 0);
  CHECK(ends.sender.takeSlot() == -1);
  CHECK(ends.asked == 1);
  ends.hasMemory = true;
  for (uint32_t i = 0; i < kSlots; i++) CHECK(ends.sender.takeSlot() >= 0);
  CHECK(ends.sender.takeSlot() == -1);
  CHECK(ends.asked == 2);
}

TEST_CASE("a peer that offers nothing is sent nothing, and nobody takes staging for it") {
  Ends ends;
  EagerSender sender(ends);
  sender.open(0, kSlotBytes, 96, kNumber, ends.line.data());
  CHECK_FALSE(sender.sends(0));
  CHECK(sender.takeSlot() == -1);
  CHECK(ends.asked == 0);
}

TEST_CASE("a credit record that is torn, late or another peering's is not believed") {
  Ends ends;
  std::vector<int> taken;
  for (uint32_t i = 0; i < kSlots; i++) taken.push_back(ends.sender.takeSlot());
  ends.deliver(taken[0]);
  const CreditRecord older = ends.receiver.record(kNumber);
  ends.deliver(taken[1]);
  const CreditRecord newer = ends.receiver.record(kNumber);
  CreditRecord torn = newer;
  torn.freed = ~torn.freed;
  ends.land(torn);
  CHECK(ends.sender.takeSlot() == -1);
  ends.land(ends.receiver.record(kNumber + 1));
  CHECK(ends.sender.takeSlot() == -1);
  ends.land(newer);
  CHECK(ends.sender.takeSlot() >= 0);
  ends.land(older);
  CHECK(ends.sender.takeSlot() >= 0);  // what the newer one told stays
  CHECK(ends.sender.takeSlot() == -1);
}

TEST_CASE("a write that comes again, or into a slot that is full, holds nothing") {
  Ends ends;
  EagerReceiver& in = ends.receiver;
  CHECK(in.at(kSlots) == nullptr);
  CHECK(in.at(1) == ends.pool.data() + kSlotBytes);
  CHECK(in.mayArrive(kSlotBytes - sizeof(EagerHeader)));
  CHECK_FALSE(in.mayArrive(kSlotBytes));
  CHECK_FALSE(in.hold(3, 1));
  CHECK(in.hold(3, 0));
  CHECK_FALSE(in.hold(3, 0));
  CHECK_FALSE(in.hold(3, 1));  // still full
  (void)in.free(3);
  CHECK_FALSE(in.hold(3, 0));
  CHECK(in.misses(3, 1, ~0u));
  CHECK(in.hold(3, 1));
  CHECK_FALSE(in.misses(3, 1, ~0u));
  CHECK_FALSE(in.misses(kSlots, 0, ~0u));
}

TEST_CASE("one credit record is under way at a time, unless its lane was fenced") {
  Ends ends;
  EagerReceiver& in = ends.receiver;
  CHECK_FALSE(in.startCredit(false));  // there is nothing to tell
  CHECK(in.hold(0, 0));
  (void)in.free(0);
  REQUIRE(in.startCredit(false));
  in.creditLeftBy(2);
  CHECK_FALSE(in.startCredit(true));
  CHECK(in.creditLanded());
  REQUIRE(in.startCredit(true));
  in.creditFenced(1);
  CHECK_FALSE(in.startCredit(true));
  in.creditFenced(2);
  CHECK(in.startCredit(true));
}

TEST_CASE("what left by a lane that is fenced is written again unless its credit came") {
  Ends ends;
  const int first = ends.sender.takeSlot(), second = ends.sender.takeSlot(), other = ends.sender.takeSlot();
  ends.sender.leftBy(first, 1);
  ends.sender.leftBy(second, 1);
  ends.sender.leftBy(other, 0);
  ends.deliver(first);
  ends.land(ends.receiver.record(kNumber));
  std::vector<int> lost;
  ends.sender.eachUnreturned(1, [&](int slot) { lost.push_back(slot); });
  CHECK(lost == std::vector<int>{second});
  CHECK_FALSE(ends.sender.beginAgain(first));
  REQUIRE(ends.sender.beginAgain(second));
  // Expect: its slot rests until that write has landed, though its credit is here.
  ends.deliver(second);
  ends.land(ends.receiver.record(kNumber));
  int free = 0;
  while (ends.sender.takeSlot() >= 0) free++;
  CHECK(free == kSlots - 2);
  ends.sender.landed(static_cast<uint32_t>(second));
  CHECK(ends.sender.takeSlot() == second);
  ends.sender.accounted(other, 0);
  ends.sender.eachUnreturned(0, [&](int slot) { CHECK(slot != other); });
}

}  // namespace
}  // namespace weft::core
