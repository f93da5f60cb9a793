// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "tests/soak/episode.h"
#include "tests/soak/footprint.h"
#include "tests/soak/options.h"

// The process that lives through the whole soak. In each round it gives every peer a thread, starts it as a
// process with a fault of its own, plays episodes with it until the round ends, and then, with nothing open
// any more, looks at what it holds itself. `run` is the main thread's.
namespace weft::soak {

class Hub {
 public:
  Hub(Run& run, const Options& options, netdriver::Library& library)
      : run_(run), options_(options), library_(library) {}

  // Ends with the time, or with the first round that failed.
  void run();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  void round(uint64_t number);
  void servePeer(uint64_t seed);
  bool playLife(system::Random& random, netdriver::ChildProcess& child, const netdriver::Place& place,
                bool harsh);
  Script drawScript(system::Random& random, bool harsh, bool last) const;
  std::vector<std::string> peerArguments(system::Random& random, bool harsh, uint16_t port) const;
  void report(uint64_t number) const;

  Run& run_;
  const Options options_;
  netdriver::Library& library_;
  TimePoint begin_ = std::chrono::steady_clock::now();
  TimePoint roundEnd_{};
  std::atomic<uint64_t> connections_{0};
};

// The other side: plays what the hub says until it says that was the last.
int runPeer(const Options& options);

// What the plugin is told in every process; set before it is loaded.
void prepareEnvironment(const Options& options, const std::string& provider);

}  // namespace weft::soak
