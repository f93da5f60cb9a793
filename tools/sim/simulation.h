// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/base/config.h"
#include "tools/perf/operation.h"
#include "tools/sim/fabric.h"

// An operation among ranks in one thread: the core's own protocol over cards that take time, under a virtual
// clock. The same setup gives the same outcome. Plain values; one simulation at a time.
namespace weft::sim {

struct Setup {
  const perf::Operation* operation = nullptr;  // null: connections, and a message over each
  int ranks = 2;
  int peers = 0;  // without an operation: that each rank connects to; 0: all others
  Fabric fabric;
  Config config;
  std::vector<uint64_t> sizes;
  int iterations = 1;
  int warmup = 1;
  uint64_t seed = 1;
};

struct Timed {
  uint64_t bytes = 0;       // that were asked for
  double microseconds = 0;  // of an iteration, the mean of all ranks
  double slowest = 0;       // of the rank that took longest
  uint64_t messages = 0;    // sent and received by all ranks in the iterations
};

struct Outcome {
  std::vector<Timed> rows;
  double connectedUs = 0;     // until the last connection stood
  double firstResultUs = 0;   // until the last rank had the first operation's
  uint64_t connections = 0;   // of all ranks
  uint64_t controlMails = 0;  // that made them
  size_t mostSockets = 0;     // of a rank's control links
  size_t mostRegistered = 0;  // bytes of a rank, by the protocol itself
  uint64_t untold = 0;        // times that a thread found something that nobody had told it of
  uint64_t steps = 0;         // of the scheduler
  uint64_t hash = 0;          // of all of them
};

// `stepped` is called with each step of the scheduler, and `began` when a size begins.
struct Watcher {
  std::function<void()> stepped;
  std::function<void(size_t size)> began;
};

Result<Outcome> simulate(const Setup& setup, const Watcher& watcher);

// The way from one rank to another, as `weft perf --fit` measures it: of a small message, and the rate of one
// card.
struct OneWay {
  double stepUs = 0;
  double cardGBps = 0;
};
Result<OneWay> measureOneWay(const Setup& setup, const Watcher& watcher);

}  // namespace weft::sim
