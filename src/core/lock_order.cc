// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/lock_order.h"

namespace weft::core {

namespace {

thread_local uint8_t held = 0;  // a bit for each rank that the thread holds

constexpr uint8_t bitOf(LockRank rank) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(rank));
}

}  // namespace

bool mayLock(LockRank rank) {
  return held < bitOf(rank);
}

bool mayBlock() {
  return (held & ~bitOf(LockRank::opening)) == 0;
}

void OrderedMutex::lock() {
  assert(mayLock(rank_));
  mutex_.lock();
  held = static_cast<uint8_t>(held | bitOf(rank_));
}

bool OrderedMutex::try_lock() {
  assert(mayLock(rank_));
  if (!mutex_.try_lock()) return false;
  held = static_cast<uint8_t>(held | bitOf(rank_));
  return true;
}

void OrderedMutex::unlock() {
  held = static_cast<uint8_t>(held & ~bitOf(rank_));
  mutex_.unlock();
}

}  // namespace weft::core
