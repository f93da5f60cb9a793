// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/budget.h"

#include "tests/support/catch.h"

using weft::core::Budget;

TEST_CASE("a budget: nothing is taken that is not there") {
  Budget budget;
  CHECK_FALSE(budget.take(1));
  budget.open(8, 1 << 20);
  CHECK(budget.take(6));
  CHECK_FALSE(budget.take(3));
  CHECK(budget.take(2));
  CHECK_FALSE(budget.take(1));
  budget.giveBack(8);
  CHECK(budget.take(8));
}

TEST_CASE("a budget: eager slots take half of the notifications and no more bytes than are allowed") {
  Budget budget;
  budget.open(100, 10'000);
  CHECK(budget.takeSlots(64, 0) == 0);
  CHECK(budget.takeSlots(64, 1000) == 10);  // bytes
  CHECK(budget.takeSlots(64, 1) == 0);
  budget.giveBackSlots(10, 1000);
  CHECK(budget.takeSlots(64, 100) == 50);  // half
  CHECK(budget.takeSlots(64, 100) == 0);
  CHECK(budget.take(50));
  CHECK_FALSE(budget.take(1));
  budget.giveBackSlots(50, 100);
  CHECK(budget.take(50));
  CHECK(budget.takeSlots(64, 100) == 0);  // told receives have what is left
}

TEST_CASE("a budget: receives that stand take a quarter of the notifications") {
  Budget budget;
  budget.open(100, 10'000);
  CHECK(budget.takeStanding(16));
  CHECK_FALSE(budget.takeStanding(16));
  CHECK(budget.takeStanding(9));
  CHECK(budget.take(75));
  CHECK_FALSE(budget.take(1));
  budget.giveBackStanding(16);
  CHECK(budget.take(16));
  CHECK_FALSE(budget.takeStanding(16));  // others have them
}
