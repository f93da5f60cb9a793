// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// How a Device's helper threads reach a Queue: they leave events, its thread reads them when it polls next.
// An empty mailbox costs the poll one relaxed load.
namespace weft::verbs {

struct QueueEvent {
  enum class About : uint8_t {
    connected,  // a SendQueue's queue pair, or it could not be
    lane,       // a queue pair failed
    last,       // a queue pair in ERR took its last receive
    queue,      // something that all lanes need
  };
  About about = About::connected;
  uint64_t sender = 0;     // connected: the SendQueue's number
  uint32_t queuePair = 0;  // lane, last: which
  int error = 0;           // errno-like; 0: it worked
  std::string why;
};

class Mailbox {
 public:
  bool empty() const { return !any_.load(std::memory_order_relaxed); }

  void post(QueueEvent event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    any_.store(true, std::memory_order_release);
  }

  std::vector<QueueEvent> take() {
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<QueueEvent> events_;
  std::atomic<bool> any_{false};
};

}  // namespace weft::verbs
