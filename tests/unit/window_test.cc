// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/window.h"

#include "tests/support/catch.h"

using namespace weft;
using namespace weft::core;

TEST_CASE("a label gives back what it was made of") {
  const DirectHeader header{0xffffffff, 7, 0x80000000, 12};
  const MessageLabel label = labelOf(header);
  CHECK(label.imm == static_cast<uint32_t>(LabelKind::message));
  const DirectHeader again = directHeaderOf(label);
  CHECK(again.comm == header.comm);
  CHECK(again.tag == header.tag);
  CHECK(again.k == header.k);
  CHECK(again.ctsRead == header.ctsRead);
  const WindowReturn window{3, 0xfffffff0};
  CHECK(labelOf(window).imm == static_cast<uint32_t>(LabelKind::window));
  CHECK(windowReturnOf(labelOf(window)).comm == 3);
  CHECK(windowReturnOf(labelOf(window)).returned == 0xfffffff0);
}

TEST_CASE("early memory comes in few sizes, and hardly more of it than a message has bytes") {
  CHECK(earlyBytes(0) == 256);
  CHECK(earlyBytes(256) == 256);
  CHECK(earlyBytes(257) == 384);
  CHECK(earlyBytes(1024) == 1024);
  CHECK(earlyBytes(1025) == 1280);
  CHECK(earlyBytes(100'000) == 114'688);
  CHECK(earlyBytes(512 << 10) == 512 << 10);
  CHECK(earlyBytes(1 << 30) == 1 << 30);
  for (uint64_t bytes = 1024; bytes < 300'000; bytes += 77) {
    REQUIRE(earlyBytes(bytes) >= bytes);
    REQUIRE(earlyBytes(bytes) * 4 <= bytes * 5);
    REQUIRE(earlyBytes(earlyBytes(bytes)) == earlyBytes(bytes));
  }
}

TEST_CASE("a sender takes no more than its window, and has it back as its receiver says") {
  const auto none = static_cast<uint32_t>(chargeOf(0));
  const auto some = static_cast<uint32_t>(chargeOf(400));
  WindowOut out;
  CHECK_FALSE(out.holds(0));  // none was granted
  out.open(some + none);
  CHECK(out.holds(400));
  out.take(400);
  CHECK_FALSE(out.holds(400));
  CHECK(out.holds(0));
  out.take(0);
  CHECK_FALSE(out.holds(0));
  CHECK(out.giveBack(some));
  CHECK(out.holds(400));
  CHECK(out.giveBack(none));  // an older word, which came late
  CHECK(out.holds(400));
  CHECK_FALSE(out.giveBack(some + none + 1));  // more than was taken
}

TEST_CASE("a window goes on when its counts wrap") {
  WindowOut out;
  WindowIn in;
  out.open(1 << 20);
  in.open(1 << 20);
  for (int i = 0; i < 10'000; i++) {
    REQUIRE(out.holds(900'000));
    out.take(900'000);
    REQUIRE(in.arrives(900'000));
    in.matched(900'000);
    REQUIRE(in.due());
    REQUIRE(out.giveBack(in.tell()));
  }
}

TEST_CASE("a receiver refuses what its sender was not granted") {
  WindowIn in;
  in.open(static_cast<uint32_t>(2 * chargeOf(300)));
  CHECK(in.arrives(300));
  CHECK(in.arrives(300));
  CHECK_FALSE(in.arrives(0));
  WindowIn none;
  CHECK_FALSE(none.arrives(0));
}

TEST_CASE(
    "the pool of all windows is never promised twice, and the first ones leave something for the others") {
  WindowPool pool(1 << 20);
  uint32_t granted = 0;
  int windows = 0;
  while (const uint32_t more = pool.take(512 << 10)) {
    granted += more;
    windows++;
  }
  CHECK(granted <= (1 << 20));
  CHECK(windows == 16);
  CHECK(pool.taken() == granted);
  pool.giveBack(granted);
  CHECK(pool.taken() == 0);
  CHECK(WindowPool(0).take(1 << 20) == 0);
}
