// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <sched.h>

// Serialises a software provider's domain. net 1.17 looks keys up while it polls, without the lock that
// registering takes, so registering from another thread crashed. The data path only tries to enter, and takes
// a refusal for "nothing yet". The control path announces itself, so that a Queue that is polled all the time
// cannot keep it out, and waits for the running poll at most. Any thread.
namespace weft::ofi {

class Gate {
 public:
  bool tryEnter() {
    if (wanted_.load(std::memory_order_relaxed) != 0) return false;
    return !busy_.exchange(true, std::memory_order_acquire);
  }
  void enter() {
    wanted_.fetch_add(1, std::memory_order_relaxed);
    while (busy_.exchange(true, std::memory_order_acquire)) ::sched_yield();
    wanted_.fetch_sub(1, std::memory_order_relaxed);
  }
  void leave() { busy_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> busy_{false};
  std::atomic<int> wanted_{0};
};

// The control path's stay inside. A null gate is always open: with hardware the driver locks.
class Entered {
 public:
  explicit Entered(Gate* gate) : gate_(gate) {
    if (gate_) gate_->enter();
  }
  ~Entered() {
    if (gate_) gate_->leave();
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Gate* gate_;
};

// The data path's stay inside, if it got in.
class TriedToEnter {
 public:
  explicit TriedToEnter(Gate* gate) : gate_(gate) {
    if (!gate || gate->tryEnter()) [[likely]]
      return;
    inside_ = false;
    gate_ = nullptr;
  }
  ~TriedToEnter() {
    if (gate_) [[likely]]
      gate_->leave();
  }
  TriedToEnter(const TriedToEnter&) = delete;
  TriedToEnter& operator=(const TriedToEnter&) = delete;
  explicit operator bool() const { return inside_; }

 private:
  Gate* gate_;  // null: nothing to leave
  bool inside_ = true;
};

}  // namespace weft::ofi
