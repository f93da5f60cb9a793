// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// The way of a Device's helper threads to a Queue: they leave events, and the Queue's thread reads them at
// its next poll. An empty mailbox costs the poll one relaxed load. Any thread posts; the Queue's thread
// takes.
namespace weft::verbs {

struct PortAddress;

struct QueueEvent {
  enum class About : uint8_t {
    connected,  // a SendQueue's queue pair is connected, or cannot be
    lane,       // a queue pair has failed
    last,       // a queue pair in ERR took its last receive
    port,       // it went down, or is up again
    address,    // the port's addresses were read anew
    queue,      // something that all lanes need has failed
  };
  About about = About::connected;
  uint64_t sender = 0;     // connected: the SendQueue's number
  uint32_t queuePair = 0;  // lane, last: the queue pair's number
  int error = 0;           // errno-like; 0: success
  std::string why;
  std::shared_ptr<const PortAddress> now{};  // address
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
  std::atomic<bool> any_{false};  // a hint that is read without the lock; events_ is read under it
};

}  // namespace weft::verbs
