// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "src/base/threads.h"

// Short-lived threads of a daemon, each with an errand that may have to wait for a member: the talk with a
// process that joins, the news that a group is given up, the closing of an ended group. So a slow member
// delays only its own group. Any thread.
namespace weft::agg {

class Errands {
 public:
  explicit Errands(const Threads& threads) : threads_(threads) {}
  ~Errands() { finish(); }
  // False: the system has no thread now, and nothing was begun.
  bool start(const char* name, std::function<void()> work);
  void reap();           // joins the threads whose errands are done; waits for no errand
  void finish();         // joins all threads; the caller has told them to end, and starts no more
  size_t count() const;  // errands under way or not yet joined

 private:
  struct Errand {
    std::unique_ptr<RunningThread> thread;
    std::atomic<bool> done{false};
  };
  const Threads& threads_;
  mutable std::mutex mutex_;
  std::list<Errand> errands_;  // a list, since each thread refers to its own entry
};

}  // namespace weft::agg
