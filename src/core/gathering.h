// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstdint>

// When messages to a peer wait for each other, where a post is a system call (DeviceInfo::postIsCall).
// The first leaves at once; those that come close behind it wait for some passes and leave together. A job
// that also receives makes a pass between any two of its sends, so passes alone must not end the waiting. The
// test of a message that waits does end it: NCCL waits for that one, and it must not be late. Where tests
// show that messages wait alone, the next ones do not wait. A value of its peering's; only inside the engine.
// Passes are the engine's count of them.
namespace weft::core {

class Gathering {
 public:
  // Of a small message that is posted now: it waits for others.
  bool waits(uint64_t pass) {
    const bool follows = pass - lastPass_ <= kClose;
    lastPass_ = pass;
    if (!follows || alone_ == 0) return follows;
    alone_--;
    return false;
  }
  // A message waits. The number tells isFor() which departure it is part of.
  uint32_t add(uint64_t pass) {
    if (waiting_++ == 0) latest_ = pass + kMostInAll;
    until_ = std::min(pass + kMostPasses, latest_);
    return departure_;
  }
  bool isFor(uint32_t departure) const { return waiting_ > 0 && departure == departure_; }
  bool holds(uint64_t pass) const { return waiting_ > 0 && until_ > pass; }
  // Something else is to leave: nothing is held back any more.
  void hurry() { until_ = 0; }
  // NCCL waits for one of those that wait.
  void tested() {
    if (waiting_ == 1) alone_ = kAlone;
    hurry();
  }
  // All that waited was handed to the fabric.
  void left() {
    if (waiting_ == 0) return;
    waiting_ = 0;
    if (++departure_ == 0) departure_ = 1;
  }

 private:
  static constexpr uint64_t kClose = 4;
  static constexpr uint64_t kMostPasses = 16;  // each costs about a microsecond where nothing arrives
  static constexpr uint64_t kMostInAll = 64;   // while others join
  static constexpr uint32_t kAlone = 32;

  uint32_t waiting_ = 0;
  uint32_t alone_ = 0;      // so many of the next messages do not wait
  uint32_t departure_ = 1;  // 0 is a message that does not wait
  uint64_t until_ = 0;      // the pass whose end lets them go
  uint64_t latest_ = 0;     // where that pass may be at most
  uint64_t lastPass_ = 0;   // of the last small message
};

}  // namespace weft::core
