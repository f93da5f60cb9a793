// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

// Short-lived threads of a daemon, each with one errand that may wait for a member: talking to a process that
// joins, telling members that their group is given up, closing a group that has ended. A member that takes
// its time therefore delays no group but its own. Any thread.
namespace weft::agg {

class Errands {
 public:
  ~Errands() { finish(); }
  // False: the system gives no thread now, and nothing was begun.
  bool start(const char* name, std::function<void()> work);
  void reap();           // joins the threads whose errands are done; waits for none
  void finish();         // joins all; the caller has told them to end, and starts no more
  size_t count() const;  // those that are under way or not yet joined

 private:
  struct Errand {
    std::thread thread;
    std::atomic<bool> done{false};
  };
  mutable std::mutex mutex_;
  std::list<Errand> errands_;  // a list, as each thread knows its own entry
};

}  // namespace weft::agg
