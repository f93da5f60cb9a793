// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace softgpu {

// A point in a stream's work that others wait for. Set once by the stream's worker; any thread may wait or
// ask.
class Completion {
 public:
  void set() {
    const std::lock_guard guard(lock_);
    done_ = true;
    at_ = std::chrono::steady_clock::now();
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock guard(lock_);
    changed_.wait(guard, [this] { return done_; });
  }
  bool done() {
    const std::lock_guard guard(lock_);
    return done_;
  }
  std::chrono::steady_clock::time_point at() {
    const std::lock_guard guard(lock_);
    return at_;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  bool done_ = false;
  std::chrono::steady_clock::time_point at_{};
};

}  // namespace softgpu
