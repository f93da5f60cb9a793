// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/host_costs.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <thread>
#include <vector>

#include "tools/perf/elements.h"
#include "tools/perf/samples.h"

namespace weft::perf {

namespace {

// As weft perf has them: slots that are used in turn, and data through which an operation goes.
struct Extent {
  size_t slot = 0;
  size_t data = 0;
};
constexpr Extent kNear{size_t{128} << 10, size_t{1} << 20};
constexpr Extent kFar{size_t{1} << 20, size_t{32} << 20};
constexpr size_t kSlots = 4;
constexpr size_t kMoved = size_t{32} << 20;  // at a time
constexpr int kTimes = 7;

using Rates = ProcessorCosts::Rates;

// GB/s of the median of several times.
template <class F>
double rateOf(const Extent& extent, F&& piece) {
  std::vector<double> rates;
  for (int i = 0; i < kTimes; ++i) {
    const int64_t begin = processorTime(CLOCK_THREAD_CPUTIME_ID);
    for (size_t at = 0; at < kMoved; at += extent.slot)
      piece(at % extent.data, at / extent.slot % kSlots * extent.slot);
    rates.push_back(static_cast<double>(kMoved) /
                    static_cast<double>(processorTime(CLOCK_THREAD_CPUTIME_ID) - begin));
  }
  return median(std::move(rates));
}

Rates measureMemory(const ElementType& type, const Extent& extent) {
  std::vector<std::byte> data(extent.data);
  std::vector<std::byte> slots(extent.slot * kSlots);
  std::vector<std::byte> others(extent.slot * kSlots);
  Rates rates;
  rates.copyGBps = rateOf(extent, [&](size_t at, size_t slot) {
    std::memcpy(data.data() + at, slots.data() + slot, extent.slot);
  });
  rates.reduceGBps = rateOf(extent, [&](size_t at, size_t slot) {
    type.reduce(RedOp::sum, others.data() + slot, slots.data() + slot, data.data() + at,
                extent.slot / type.bytes);
  });
  return rates;
}

// The mean of several threads that measure at the same time.
Rates measureTogether(size_t threads, const ElementType& type, const Extent& extent) {
  std::vector<Rates> all(threads);
  std::vector<std::thread> running;
  for (Rates& one : all) running.emplace_back([&] { one = measureMemory(type, extent); });
  for (std::thread& thread : running) thread.join();
  Rates mean;
  for (const Rates& one : all) {
    mean.copyGBps += one.copyGBps / static_cast<double>(threads);
    mean.reduceGBps += one.reduceGBps / static_cast<double>(threads);
  }
  return mean;
}

int usableProcessors() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  return sched_getaffinity(0, sizeof(mine), &mine) == 0 ? CPU_COUNT(&mine) : 1;
}

}  // namespace

ProcessorCosts measureProcessor(int ranks) {
  ProcessorCosts costs;
  costs.processors = usableProcessors();
  const auto types = parseTypes("float");
  if (!types) return costs;
  const auto threads = static_cast<size_t>(std::clamp(ranks, 1, costs.processors));
  costs.near = measureTogether(threads, *types->front(), kNear);
  costs.far = measureTogether(threads, *types->front(), kFar);
  return costs;
}

}  // namespace weft::perf
