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

// As weft perf has them: slots that are used in turn, and data through which an operation goes once.
constexpr size_t kSlot = size_t{1} << 20;
constexpr size_t kSlots = 4;
constexpr size_t kData = size_t{32} << 20;
constexpr int kTimes = 7;

// GB/s of the median of several times.
template <class F>
double rateOf(F&& piece) {
  std::vector<double> rates;
  for (int i = 0; i < kTimes; ++i) {
    const int64_t begin = processorTime(CLOCK_THREAD_CPUTIME_ID);
    for (size_t at = 0; at < kData; at += kSlot) piece(at, at / kSlot % kSlots * kSlot);
    rates.push_back(static_cast<double>(kData) /
                    static_cast<double>(processorTime(CLOCK_THREAD_CPUTIME_ID) - begin));
  }
  return median(std::move(rates));
}

struct Rates {
  double copy = 0;
  double reduce = 0;
};

void measureMemory(const ElementType& type, Rates* rates) {
  std::vector<std::byte> data(kData);
  std::vector<std::byte> slots(kSlot * kSlots);
  std::vector<std::byte> others(kSlot * kSlots);
  rates->copy =
      rateOf([&](size_t at, size_t slot) { std::memcpy(data.data() + at, slots.data() + slot, kSlot); });
  rates->reduce = rateOf([&](size_t at, size_t slot) {
    type.reduce(RedOp::sum, others.data() + slot, slots.data() + slot, data.data() + at, kSlot / type.bytes);
  });
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
  std::vector<Rates> rates(static_cast<size_t>(std::clamp(ranks, 1, costs.processors)));
  std::vector<std::thread> threads;
  for (Rates& one : rates) threads.emplace_back([&] { measureMemory(*types->front(), &one); });
  for (std::thread& thread : threads) thread.join();
  for (const Rates& one : rates) {
    costs.copyGBps += one.copy / static_cast<double>(rates.size());
    costs.reduceGBps += one.reduce / static_cast<double>(rates.size());
  }
  return costs;
}

}  // namespace weft::perf
