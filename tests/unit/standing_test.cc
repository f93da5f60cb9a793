// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/standing.h"

#include "tests/support/catch.h"

// What counts as a wait, when it is due for a warning, and who is to blame for it.
using namespace weft;
using namespace weft::core;
using namespace std::chrono_literals;

namespace {

constexpr TimePoint kBegin{100s};

Standing awaited(TimePoint since, bool counts = true) {
  Standing standing;
  standing.seen(7, 8, since, counts);
  return standing;
}

WaitLook lookAt(TimePoint now, TimePoint after = {}) {
  WaitLook look;
  look.now = now;
  look.after = after;
  return look;
}

}  // namespace

TEST_CASE("a wait lasts as long as it is for one message") {
  Standing standing;
  CHECK(standing.over(kBegin).lasted == 0s);
  CHECK(standing.seen(1, 100, kBegin, true).lasted == 0s);
  CHECK(standing.seen(1, 100, kBegin + 1s, true).lasted == 0s);
  CHECK(standing.since() == kBegin);
  const Standing::Ended first = standing.seen(2, 200, kBegin + 3s, true);
  CHECK(first.lasted == 3s);
  CHECK(first.bytes == 100);
  CHECK(standing.since() == kBegin + 3s);
  const Standing::Ended second = standing.over(kBegin + 5s);
  CHECK(second.lasted == 2s);
  CHECK(second.bytes == 200);
  CHECK(standing.since() == TimePoint{});
  CHECK(standing.counted() == TimePoint{});
}

TEST_CASE("a wait for a process that does not answer counts from when it answers again") {
  Standing standing = awaited(kBegin, false);
  CHECK(standing.since() == kBegin);
  CHECK(standing.counted() == TimePoint{});
  standing.seen(7, 8, kBegin + 2s, true);
  CHECK(standing.counted() == kBegin + 2s);
  standing.seen(7, 8, kBegin + 3s, true);
  CHECK(standing.counted() == kBegin + 2s);
  standing.seen(7, 8, kBegin + 4s, false);
  CHECK(standing.counted() == TimePoint{});
  CHECK(standing.since() == kBegin);
}

TEST_CASE("a wait is due from its limit on, and new until it was warned of") {
  WaitLook early = lookAt(kBegin + 5s - 1ns);
  early.add(awaited(kBegin), 5s);
  CHECK(early.waits);
  CHECK_FALSE(early.due);
  WaitLook due = lookAt(kBegin + 5s);
  due.add(awaited(kBegin), 5s);
  CHECK(due.due);
  CHECK(due.newlyDue);
  // What began up to the last warning is part of it, and what began later is not.
  WaitLook again = lookAt(kBegin + 9s, kBegin);
  again.add(awaited(kBegin), 5s);
  CHECK(again.due);
  CHECK_FALSE(again.newlyDue);
  again.add(awaited(kBegin + 1ns), 5s);
  CHECK(again.newlyDue);
  WaitLook none = lookAt(kBegin + 9s);
  none.add(Standing{}, 5s);
  none.add(awaited(kBegin, false), 5s);
  CHECK(none.waits);
  CHECK_FALSE(none.due);
}

TEST_CASE("this end is late when a peer waits for it over the limit, and was not warned of") {
  WaitLook look = lookAt(kBegin + 9s, kBegin);
  look.addAsked(awaited(kBegin), 5s);
  look.addAsked(awaited(kBegin + 5s), 5s);
  look.addAsked(Standing{}, 5s);
  CHECK_FALSE(look.late);
  look.addAsked(awaited(kBegin + 1s), 5s);
  CHECK(look.late);
  look.addAsked(Standing{}, 5s);
  CHECK(look.late);
  CHECK_FALSE(look.waits);
}

TEST_CASE("the oldest wait is to blame, and of equal ones the lowest message") {
  WaitLook look = lookAt(kBegin + 9s);
  look.blame(kBegin + 2s, {"two", 9});
  look.blame(kBegin + 3s, {"three", 1});
  CHECK(look.culprit.name == "two");
  look.blame(kBegin + 2s, {"earlier", 8});
  CHECK(look.culprit.name == "earlier");
  look.blame(kBegin + 2s, {"the same", 8});
  look.blame(kBegin + 2s, {"later", 9});
  CHECK(look.culprit.name == "earlier");
  look.blame(kBegin + 1s, {"oldest", 20});
  CHECK(look.culprit.name == "oldest");
  CHECK(look.oldest == kBegin + 1s);
  look.blameFailed("first");
  look.blameFailed("second");
  CHECK(look.failed == "first");
  CHECK(look.waits);
}

TEST_CASE("the limit follows from the longest wait of that size, and from the bytes") {
  WaitHistory history;
  CHECK(history.limitFor(8, 0) >= 3s);
  CHECK(history.limitFor(8, 0) < 3s + 1us);
  history.ended({8, 0s});
  history.ended({4096, 2s});
  history.ended({4096, 1s});
  CHECK(history.limitFor(8, 0) >= 8s);
  CHECK(history.limitFor(8, 0) < 8s + 1us);
  CHECK(history.limitFor(8192, 0) < 4s);  // of another class
  for (int i = 0; i < 16; i++) history.ended({8, 100ms});
  CHECK(history.limitFor(8, 0) < 4s);
  CHECK(history.limitFor(uint64_t{1} << 30, 0) > 13s);
  CHECK(history.limitFor(uint64_t{1} << 30, 0) < 14s);
  CHECK(history.limitFor(uint64_t{1} << 30, 4000) < 5s);
  CHECK(history.limitFor(uint64_t{1} << 40, 0) == 60s);
}
