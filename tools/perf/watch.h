// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <signal.h>
#include <thread>

#include "src/base/fd.h"

// Ends this process when its time is over or SIGINT, SIGTERM or SIGHUP says so, wherever its threads wait.
// Made before any thread that could be given the signals, by the thread that destroys it; one a process.
namespace weft::perf {

class Watch {
 public:
  using LastWords = std::function<void(const std::string& why)>;

  explicit Watch(std::chrono::seconds timeout);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The action before the end, on a thread of its own. Null: nothing any more; returns when none is at it.
  void beforeEnd(LastWords lastWords);

 private:
  void wait();
  [[noreturn]] void end(int signal);

  std::chrono::seconds timeout_;
  sigset_t old_{};
  struct sigaction oldTerminate_ {};
  Fd signals_;
  Fd stop_;
  std::mutex mutex_;
  LastWords lastWords_;
  std::thread thread_;
};

}  // namespace weft::perf
