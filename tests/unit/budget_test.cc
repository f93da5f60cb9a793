// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/budget.h"

#include "tests/support/catch.h"

using weft::core::Budget;

namespace {

// So many receives of a comm that can be told now.
int told(Budget& budget, Budget::Share& share) {
  int count = 0;
  while (budget.take(&share)) count++;
  return count;
}

}  // namespace

TEST_CASE("a budget: nothing is taken that is not there") {
  Budget budget;
  Budget::Share share;
  budget.open(&share, 2);
  CHECK_FALSE(budget.take(&share));
  budget.open(9, 1 << 20);
  CHECK(told(budget, share) == 4);
  budget.giveBack(&share);
  CHECK(told(budget, share) == 1);
}

TEST_CASE("a budget: eager slots take half of the notifications and no more bytes than are allowed") {
  Budget budget;
  Budget::Share share;
  budget.open(100, 10'000);
  budget.open(&share, 1);
  CHECK(budget.takeSlots(64, 0) == 0);
  CHECK(budget.takeSlots(64, 1000) == 10);  // bytes
  CHECK(budget.takeSlots(64, 1) == 0);
  budget.giveBackSlots(10, 1000);
  CHECK(budget.takeSlots(64, 100) == 50);  // half
  CHECK(budget.takeSlots(64, 100) == 0);
  CHECK(told(budget, share) == 50);
  budget.giveBackSlots(50, 100);
  CHECK(told(budget, share) == 50);
  CHECK(budget.takeSlots(64, 100) == 0);  // told receives have what is left
}

TEST_CASE("a budget: receives that stand take a quarter of the notifications") {
  Budget budget;
  Budget::Share share;
  budget.open(100, 10'000);
  budget.open(&share, 1);
  CHECK(budget.takeStanding(16));
  CHECK_FALSE(budget.takeStanding(16));
  CHECK(budget.takeStanding(9));
  CHECK(told(budget, share) == 75);
  budget.giveBackStanding(16);
  CHECK(told(budget, share) == 16);
  CHECK_FALSE(budget.takeStanding(16));  // others have them
}

TEST_CASE("a budget: what a comm needs for one receive is kept for it, up to a quarter in all") {
  Budget budget;
  Budget::Share greedy, modest[8];
  budget.open(100, 10'000);
  budget.open(&greedy, 4);
  for (int i = 0; i < 3; i++) budget.open(&modest[i], 4);
  budget.open(&modest[0], 4);  // again
  CHECK(told(budget, greedy) == 22);
  for (int i = 0; i < 3; i++) CHECK(told(budget, modest[i]) == 1);
  CHECK_FALSE(budget.mayTake(greedy));
  // Event: it is filled. Expect: what it took is kept for the next one.
  budget.giveBack(&modest[0]);
  CHECK_FALSE(budget.take(&greedy));
  CHECK(told(budget, modest[0]) == 1);
  // Event: it is over. Expect: nothing is kept for it.
  budget.giveBack(&modest[0]);
  budget.close(&modest[0]);
  CHECK(told(budget, greedy) == 1);

  while (greedy.told > 0) budget.giveBack(&greedy);
  for (int i = 1; i < 3; i++) budget.giveBack(&modest[i]);
  for (int i = 3; i < 8; i++) budget.open(&modest[i], 4);
  CHECK(told(budget, greedy) == 18);  // seven others want 28; a quarter is 25
  CHECK(budget.takeSlots(64, 100) == 3);
  CHECK_FALSE(budget.takeStanding(1));
}
