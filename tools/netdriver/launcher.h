// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "tools/netdriver/bootstrap.h"
#include "tools/netdriver/child_process.h"

// Starts the ranks of one run as local processes of this program and looks after them: what they write to
// stderr appears with their rank in front, the first that fails ends all others, and so do Ctrl-C and the
// deadline. Each rank gets the arguments "--rank R --size N --rendezvous HOST:PORT", rank 0 also "--listen-fd
// FD". Used by one thread; uses the process's SIGINT, SIGTERM and SIGHUP handlers while it runs.
namespace weft::netdriver {

struct LaunchOptions {
  int processes = 2;
  std::string command;                     // of this program, what stands behind its name
  std::vector<std::string> arguments;      // after that
  std::vector<std::string> rootArguments;  // for rank 0 only, with descriptors that stay open for it
  std::vector<int> rootFds;
  std::string
      beforeLine;   // what is written before a line of a rank, to wipe what the root shows on a terminal
  int verdict = 0;  // an exit code of rank 0 that is a result, not a failure; 0: none
  Milliseconds timeout{0};
};

class Launcher {
 public:
  explicit Launcher(LaunchOptions options) : options_(std::move(options)) {}

  // Returns when no rank is left: fine when all ended with exit code 0, otherwise an error that names the
  // rank that failed first, how, and its last words.
  Status run();
  // After a run that went well: whether rank 0 ended with the code that is a verdict.
  bool hasVerdict() const { return hasVerdict_; }
  // After a run that failed: the signal that ended it; 0: none.
  int interruptedBy() const { return interruptedBy_; }
  // Likewise: because nobody reads our standard output any more, as behind `| head`.
  bool outputClosed() const { return outputClosed_; }

 private:
  struct Rank {
    ChildProcess process;
    std::string partialLine;
    std::string lastLine;
    bool reaped = false;
  };

  Status startAll();
  Status watch();
  bool reap();
  void readErrors(int pauseMs);
  void drain(size_t rank);
  void showLine(size_t rank, const std::string& line);
  void showHeldLines();
  void stopAll();
  std::string describeFailure();
  std::string stoppedRanks() const;

  LaunchOptions options_;
  LocalListener listener_;
  std::deque<Rank> ranks_;
  bool hasVerdict_ = false;
  int interruptedBy_ = 0;
  bool outputClosed_ = false;
  std::string held_;            // what ranks wrote since our standard output has no reader
  std::vector<size_t> failed_;  // in the order seen
};

}  // namespace weft::netdriver
