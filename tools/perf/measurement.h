// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>

#include "tools/perf/results.h"
#include "tools/perf/team.h"

// Runs the iterations of a case on all communicators of a team and measures and verifies them. Used by the
// crew's thread 0, on all ranks at the same time.
namespace weft::perf {

class Measurement {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMostIterations = 1'000'000'000;  // of one case
  // Called on thread 0 after each timed iteration.
  using OnIteration = std::function<void(Clock::time_point now)>;

  Measurement(const Options& options, netdriver::Bootstrap& bootstrap, Crew& crew)
      : options_(options), bootstrap_(bootstrap), crew_(crew) {}

  void onIteration(OnIteration watcher) { watcher_ = std::move(watcher); }

  Status warmUp(Team& team, const Case& c, int iterations);
  // So many iterations in batches. The histogram is complete on rank 0 only.
  Result<Sample> measure(Team& team, const Case& c, int iterations);
  // How many of them take about so long; the same on every rank.
  Result<int> iterationsFor(Team& team, const Case& c, double seconds);

 private:
  struct Timing {
    Clock::duration total{};
    Histogram latency;
  };

  int batchFor(const Team& team, const Case& c, int iterations) const;
  Status runBatch(Team& team, const Case& c, int iterations);
  Status runIterations(std::span<Communicator* const> mine, const Case& c, int iterations, Timing* timing,
                       bool watched);
  Status waitFor(std::span<Communicator* const> mine);
  Result<Sample> gather(const Sample& mine);
  void fillInputs(const Team& team, const Case& c, int iterations);
  uint64_t countWrong(const Team& team, const Case& c, int iterations);
  uint64_t dataNumber(const Communicator& communicator, int iteration) const;

  const Options& options_;
  netdriver::Bootstrap& bootstrap_;
  Crew& crew_;
  OnIteration watcher_;
  std::vector<Timing> timings_;  // by thread
  Clock::duration cpu_{};        // of this process, in the batches of a sample
  uint64_t iteration_ = 0;       // over the whole run, the same on all ranks
};

}  // namespace weft::perf
