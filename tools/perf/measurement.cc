// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/measurement.h"

#include <algorithm>
#include <sched.h>
#include <utility>

#include <fmt/format.h>

#include "tools/perf/samples.h"

namespace weft::perf {

namespace {

constexpr int kSpinsBetweenClocks = 1024;

double microseconds(std::chrono::nanoseconds d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

// Of all threads of the process, the plugin's own too.
std::chrono::nanoseconds ownTime() {
  return std::chrono::nanoseconds(processorTime(CLOCK_PROCESS_CPUTIME_ID));
}

}  // namespace

Status Measurement::warmUp(Team& team, const Case& c, int iterations) {
  for (const auto& communicator : team.communicators()) communicator->workload().fillInput(c, 0, iteration_);
  TRY(bootstrap_.barrier());
  return crew_.run([&](int thread) -> Status {
    const auto mine = team.ofThread(thread, crew_.size());
    for (int i = 0; i < iterations; ++i) {
      for (Communicator* communicator : mine) communicator->start(c, 0);
      TRY(waitFor(mine));
    }
    return {};
  });
}

// Doubled until they take long enough to tell; what all ranks took together is the same number on each of
// them.
Result<int> Measurement::iterationsFor(Team& team, const Case& c, double seconds) {
  const double enough = std::min(0.05, seconds / 10) * 1e6;
  const auto watcher = std::exchange(watcher_, nullptr);
  for (int count = 1;; count *= 2) {
    TRY(const Sample sample, measure(team, c, count));
    const double taken = sample.microseconds * c.operation->legs * count;
    if (taken < enough && count < kMostIterations / 2) continue;
    watcher_ = watcher;
    return static_cast<int>(
        std::clamp(seconds * 1e6 / taken * count, 1.0, static_cast<double>(kMostIterations)));
  }
}

Result<Sample> Measurement::measure(Team& team, const Case& c, int iterations) {
  Sample mine;
  timings_.assign(static_cast<size_t>(crew_.size()), {});
  cpu_ = {};
  const uint64_t before = team.messages();
  for (int left = iterations; left > 0;) {
    const int batch = std::min(left, batchFor(team, c, iterations));
    TRY(runBatch(team, c, batch));
    if (options_.check != 0) mine.wrong += countWrong(team, c, batch);
    left -= batch;
  }
  mine.messages = team.messages() - before;
  mine.cpuMicroseconds = microseconds(cpu_);
  for (const Timing& timing : timings_) {
    mine.microseconds += microseconds(timing.total) / iterations / c.operation->legs / crew_.size();
    mine.latency.merge(timing.latency);
  }
  TRY(Sample sample, gather(mine));
  sample.iterations = iterations;
  return sample;
}

Result<Sample> Measurement::gather(const Sample& mine) {
  struct Numbers {
    double microseconds;
    double cpuMicroseconds;
    uint64_t wrong;
    uint64_t messages;
  };
  TRY(const auto all,
      bootstrap_.gatherValues(Numbers{mine.microseconds, mine.cpuMicroseconds, mine.wrong, mine.messages}));
  Sample sample;
  for (const Numbers& one : all) {
    sample.microseconds += one.microseconds / static_cast<double>(all.size());
    sample.cpuMicroseconds += one.cpuMicroseconds;
    sample.wrong += one.wrong;
    sample.messages += one.messages;
  }
  TRY(const auto latencies, bootstrap_.gatherValuesToRoot(mine.latency));
  for (const Histogram& latency : latencies) sample.latency.merge(latency);
  return sample;
}

// Those between two barriers have buffers of their own, so all of them can be verified and still follow one
// another without a pause. Unverified ones share a buffer.
int Measurement::batchFor(const Team& team, const Case& c, int iterations) const {
  if (options_.check == 0) return iterations;
  const size_t slots = team.communicators().front()->workload().slots(c);
  return static_cast<int>(std::min(slots, static_cast<size_t>(iterations)));
}

Status Measurement::runBatch(Team& team, const Case& c, int iterations) {
  fillInputs(team, c, options_.check != 0 ? iterations : 1);
  TRY(bootstrap_.barrier());
  const auto cpuBefore = ownTime();
  TRY(crew_.run([&](int thread) {
    const auto mine = team.ofThread(thread, crew_.size());
    return runIterations(mine, c, iterations, &timings_[static_cast<size_t>(thread)], thread == 0);
  }));
  cpu_ += ownTime() - cpuBefore;
  return {};
}

Status Measurement::runIterations(std::span<Communicator* const> mine, const Case& c, int iterations,
                                  Timing* timing, bool watched) {
  const auto begin = Clock::now();
  auto last = begin;
  for (int i = 0; i < iterations; ++i) {
    const size_t slot = options_.check != 0 ? static_cast<size_t>(i) : 0;
    for (Communicator* communicator : mine) communicator->start(c, slot);
    TRY(waitFor(mine));
    const auto now = Clock::now();
    const auto taken = std::chrono::nanoseconds(now - last) / c.operation->legs;
    timing->latency.record(static_cast<uint64_t>(taken.count()));
    last = now;
    if (watched && watcher_) watcher_(now);
  }
  timing->total += last - begin;
  return {};
}

Status Measurement::waitFor(std::span<Communicator* const> mine) {
  const auto notDone = [](const Communicator* communicator) { return !communicator->done(); };
  auto deadline = Clock::time_point::max();
  for (int idle = 0; std::any_of(mine.begin(), mine.end(), notDone);) {
    bool moved = false;
    for (Communicator* communicator : mine) TRY(communicator->progress(&moved));
    if (moved) {
      idle = 0;
      deadline = Clock::time_point::max();
      continue;
    }
    sched_yield();  // as NCCL's proxy does when it finds nothing to do
    if (++idle % kSpinsBetweenClocks != 0) continue;
    if (crew_.failed()) return Error(Code::remote, "run", "another thread of this rank failed");
    if (deadline == Clock::time_point::max())
      deadline = Clock::now() + std::chrono::seconds(options_.stallSeconds);
    if (Clock::now() > deadline)
      return Error(Code::timeout, "run",
                   fmt::format("nothing moved for {} s (--stall-timeout)", options_.stallSeconds));
  }
  return {};
}

// Iterations and communicators have data of their own, so one's is wrong for another.
uint64_t Measurement::dataNumber(const Communicator& communicator, int iteration) const {
  return (iteration_ + static_cast<uint64_t>(iteration)) * static_cast<uint64_t>(options_.communicators) +
         static_cast<uint64_t>(communicator.number());
}

void Measurement::fillInputs(const Team& team, const Case& c, int iterations) {
  for (const auto& communicator : team.communicators())
    for (int i = 0; i < iterations; ++i)
      communicator->workload().fillInput(c, static_cast<size_t>(i), dataNumber(*communicator, i));
}

// Ends the batch: the next one has data of its own.
uint64_t Measurement::countWrong(const Team& team, const Case& c, int iterations) {
  uint64_t wrong = 0;
  for (const auto& communicator : team.communicators())
    for (int i = 0; i < iterations; ++i)
      wrong += communicator->workload().countWrong(c, static_cast<size_t>(i), dataNumber(*communicator, i),
                                                   wrong == 0);
  iteration_ += static_cast<uint64_t>(iterations);
  return wrong;
}

}  // namespace weft::perf
