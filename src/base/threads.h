// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>

#include "weft/result.h"

// How a part of weft gets threads, as it gets the time from a Clock: those of the system, or others that
// stand in for them, as the tasks of a simulated world do. Any thread.
namespace weft {

// A thread that was started. Its owner joins it before it goes.
class RunningThread {
 public:
  virtual ~RunningThread() = default;
  virtual void join() = 0;  // waits for its end
};

class Threads {
 public:
  virtual ~Threads() = default;
  // As startThread() of process.h has it. An error where there is no further thread.
  virtual Result<std::unique_ptr<RunningThread>> start(const char* name, std::function<void()> body) const;
  static const Threads& system();
};

}  // namespace weft
