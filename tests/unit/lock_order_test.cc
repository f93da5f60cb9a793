// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/lock_order.h"

#include <thread>

#include "tests/support/catch.h"

using namespace weft::core;

TEST_CASE("a thread takes its locks in their order, and waits with none but the one of opening") {
  OrderedMutex plugin(LockRank::plugin);
  {
    const std::unique_lock held(plugin, std::try_to_lock);
    REQUIRE(held);
    CHECK_FALSE(mayBlock());
    CHECK(mayLock(LockRank::opening));
    bool taken = true;
    std::thread([&] { taken = plugin.try_lock(); }).join();
    CHECK_FALSE(taken);
  }
  OrderedMutex opening(LockRank::opening), runtime(LockRank::runtime);
  CHECK(mayLock(LockRank::opening));
  CHECK(mayBlock());
  const std::lock_guard first(opening);
  CHECK(mayBlock());
  CHECK_FALSE(mayLock(LockRank::opening));
  {
    const std::lock_guard second(runtime);
    CHECK_FALSE(mayBlock());
    CHECK_FALSE(mayLock(LockRank::net));
    CHECK_FALSE(mayLock(LockRank::runtime));
    CHECK(mayLock(LockRank::router));
    // Another thread's locks are its own affair.
    bool free = false;
    std::thread([&] { free = mayBlock() && mayLock(LockRank::opening); }).join();
    CHECK(free);
  }
  CHECK(mayBlock());
  CHECK(mayLock(LockRank::runtime));
}
