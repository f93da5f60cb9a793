// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cassert>
#include <cstdint>
#include <mutex>

// The locks of this room and of the plugin, and their order. A thread that holds one takes only those that
// come later here, and holds none but `opening` where it may have to wait: for a fabric that opens a card,
// for its turn in an engine, for a comm to close. Debug builds check both. No data call takes any of them.
namespace weft::core {

enum class LockRank : uint8_t {
  plugin,   // Plugin::mutex_, of what NCCL holds
  opening,  // Runtime::opening_, for as long as a fabric takes to open a card; the control thread never takes
            // it
  net,      // Net::runtimeMutex_
  runtime,  // Runtime::mutex_
  pending,  // PendingTable::mutex_
  router,   // Router::mutex_
  devices,  // Net::mutex_
};

bool mayLock(LockRank rank);  // the calling thread holds none of these or later ones
bool mayBlock();              // it holds none but `opening`

// A std::mutex that knows its place. Any thread.
class OrderedMutex {
 public:
  constexpr explicit OrderedMutex(LockRank rank) : rank_(rank) {}

  void lock();
  bool try_lock();
  void unlock();

 private:
  const LockRank rank_;
  std::mutex mutex_;
};

}  // namespace weft::core
