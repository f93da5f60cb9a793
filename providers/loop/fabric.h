// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "providers/common/key_table.h"
#include "providers/loop/card.h"
#include "providers/loop/inbox.h"

// The directory of Endpoints that all loop Transports of a process share, so that any two can talk. Lives as
// long as its holders; the directory locks (connecting only). Any thread.
namespace weft::loop {

// An Endpoint as its peers see it. `inbox` and `regions` never change.
struct Port {
  uint64_t id = 0;
  std::shared_ptr<KeyTable> regions;  // of the Device: memory of another one cannot be reached here
  std::shared_ptr<Inbox> inbox;       // of the Queue
  std::shared_ptr<Card> card;         // of the rail; null: works take no time
  std::atomic<bool> alive{true};      // cleared when the Endpoint is destroyed
  std::atomic<uint64_t> peer{0};      // the Port it connected to, 0 before
};

class Fabric {
 public:
  static std::shared_ptr<Fabric> shared();  // the process's one
  ~Fabric();

  uint64_t nextId() { return ids_.fetch_add(1, std::memory_order_relaxed); }

  void publish(const std::shared_ptr<Port>& port);
  void withdraw(uint64_t id);
  std::shared_ptr<Port> find(uint64_t id);  // null when it does not exist (any more)

 private:
  std::weak_ptr<Fabric> self_;  // by which shared() finds it
  std::atomic<uint64_t> ids_{1};
  std::mutex mutex_;  // guards ports_
  std::map<uint64_t, std::shared_ptr<Port>> ports_;
};

}  // namespace weft::loop
