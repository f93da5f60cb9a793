// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "src/base/config.h"
#include "src/base/fd.h"
#include "weft/result.h"

// A process started by fork and exec that cannot outlive us: the kernel kills it when we die, and destruction
// kills and reaps it. Move-only; one thread.
namespace weft::netdriver {

class ChildProcess {
 public:
  struct Command {
    std::vector<std::string> arguments;  // [0] is the program's path
    std::vector<int> keepFds;            // descriptors that stay open, under the same numbers
    bool captureErrors = false;          // stderr goes to errorFd() instead of ours
  };

  static Result<ChildProcess> spawn(const Command& command);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Non-blocking; at its end when the child and its children have closed it. -1 when not captured.
  int errorFd() const { return errors_.get(); }
  bool running() { return pid_ > 0 && !poll(); }
  bool stopped() const;  // by a signal or a debugger, and not ended
  void signal(int number) const;

  // The status of waitpid once the child has ended; poll() returns at once, wait() at the latest after
  // `timeout`.
  std::optional<int> poll();
  std::optional<int> wait(Milliseconds timeout);

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
  Fd errors_;
};

// "exit code 3", "signal 9 (Killed)".
std::string describeStatus(int waitStatus);

// The path of the running program, for starting itself again.
std::string ownPath();

}  // namespace weft::netdriver
