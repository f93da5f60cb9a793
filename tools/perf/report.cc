// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/report.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tools/perf/plot.h"
#include "tools/perf/table.h"

namespace weft::perf {

namespace {

// The lines under the conditions: what the columns are.
constexpr const char* kCompareHeader =
    "#\n"
    "#       size         count      type   redop    root         place      time   busbw     other   busbw  "
    "other/ours  over the rounds  #wrong\n"
    "#        (B)    (elements)                                            (us)  (GB/s)      (us)  (GB/s)    "
    "  "
    "(time)  lowest  highest\n";
constexpr const char* kLatencyHeader =
    "#\n"
    "# latency of an iteration (us) on each rank, and processor time of all ranks for a message\n"
    "#       size      type   redop         place       min       p50       p90       p99     p99.9       "
    "max  "
    "cpu/message\n";

// "20 iterations", "10 s at each size".
std::string timing(const Options& options) {
  if (options.duration > 0) return fmt::format("{:g} s at each size", options.duration);
  return fmt::format("{} iterations", options.iterations);
}

std::string overText(const std::string& fabric) {
  return fabric.empty() ? std::string() : ", over " + fabric;
}

}  // namespace

Report::Report(const Options& options, const Operation& operation, int size)
    : options_(options), quiet_(options.documentsShown() > 0) {
  results_.options = &options;
  results_.operation = &operation;
  results_.size = size;
}

void Report::begin(Conditions conditions) {
  {
    const std::lock_guard lock(mutex_);
    results_.conditions = std::move(conditions);
    phase_ = Phase::during;
  }
  const Conditions& c = results_.conditions;
  print("# weft perf {} ({}): {} processes{}, {} after {} to warm up, {}\n", results_.operation->name,
        results_.operation->algorithm, results_.size,
        c.hosts > 1 ? fmt::format(" on {} hosts", c.hosts) : std::string(), timing(options_), options_.warmup,
        options_.check != 0 ? "every element verified" : "nothing verified");
  if (options_.communicators > 1)
    print("# each   {} communicators at a time, on {} threads; bandwidths are their sum\n",
          options_.communicators, options_.threadsInUse());
  print("# date    {}\n", c.date);
  print("# host    {}: {} x {}\n", c.host, c.processors, c.processor);
  if (c.names.size() > 1) print("# hosts   {}\n", fmt::join(c.names, " "));
  print("# plugin  {}\n", c.plugin);
  print("# network {}, device {}: {}, {} Mb/s{}\n", c.table, c.deviceNumber, c.device, c.speedMbps,
        overText(c.fabric));
  if (!c.settings.empty()) print("# set     {}\n", fmt::join(c.settings, " "));
  if (!c.other.empty())
    print("# other   {}, {} rounds of both{}{}{}\n", c.other, options_.rounds, overText(c.otherFabric),
          options_.compareEnvironment.empty() ? "" : ", with ", fmt::join(options_.compareEnvironment, " "));
  print("# sizes   {} bytes a buffer, {} a message of sendrecv and alltoall\n", options_.bufferBytes,
        options_.p2pChunkBytes);
  print("# build   {}\n", c.build);
  for (const std::string& warning : c.warnings) print("# WARNING {}\n", warning);
  if (c.ranksHere * options_.threadsInUse() > c.processors)
    print(
        "# note    {} processes{} share {} processors\n", c.ranksHere,
        options_.threadsInUse() > 1 ? fmt::format(" of {} threads", options_.threadsInUse()) : std::string(),
        c.processors);
  print("{}", c.other.empty() ? tableHeader() : kCompareHeader);
}

void Report::endRow(Row row) {
  if (!results_.conditions.other.empty()) {
    printComparison(row);
  } else {
    print("{}{}{}\n", keyText(row), halfText(results_, row, row.outOfPlace),
          halfText(results_, row, row.inPlace));
  }
  const std::lock_guard lock(mutex_);
  results_.rows.push_back(std::move(row));
}

void Report::printComparison(const Row& row) const {
  for (const auto& [place, half] : halvesOf(row)) {
    if (!half->other) continue;
    print(
        "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}  {:>12}  {:>8.2f}  {:>6.2f}  {:>8.2f}  {:>6.2f}  {:>10.3f}  "
        "{:>6.3f}  {:>7.3f}  {:>6}{}\n",
        row.bytes, row.count, row.type, row.redop, row.root, place, half->sample.microseconds,
        results_.busGBps(row, half->sample), half->other->microseconds, results_.busGBps(row, *half->other),
        half->ratio.median, half->ratio.low, half->ratio.high,
        options_.check != 0 ? std::to_string(half->wrong()) : std::string("N/A"),
        half->ratio.differs() ? "  *" : "");
  }
}

Status Report::end(const RunRatios* ratios) {
  const std::lock_guard lock(mutex_);
  phase_ = Phase::after;
  if (ratios != nullptr) {
    results_.ratio = ratios->ratio();
    results_.decades = ratios->decades();
  }
  if (options_.latency || options_.histogram) printLatencies();
  printSummary();
  TRY(write());
  return shown_ ? Status() : Status(shown_.error());
}

// Waits a second for one that is writing already, but not for an output that takes nothing. No timed_mutex:
// ThreadSanitizer does not see it locked (pthread_mutex_clocklock).
void Report::abandon(const std::string& why) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int tries = 0; !lock && tries < 100; tries++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    (void)lock.try_lock();
  }
  if (!lock || phase_ != Phase::during) return;
  phase_ = Phase::after;
  results_.endedBy = why;
  if (const Status written = write(); !written)
    fmt::print(stderr, "weft perf: {}\n", written.error().message());
}

void Report::printLatencies() const {
  print("{}", kLatencyHeader);
  for (const Row& row : results_.rows) {
    for (const auto& [place, half] : halvesOf(row)) {
      const Histogram& l = half->sample.latency;
      print("{:>12}  {:>8}  {:>6}  {:>12}", row.bytes, row.type, row.redop, place);
      for (const double value :
           {inMicroseconds(l.min()), inMicroseconds(l.quantile(0.5)), inMicroseconds(l.quantile(0.9)),
            inMicroseconds(l.quantile(0.99)), inMicroseconds(l.quantile(0.999)), inMicroseconds(l.max())})
        print("  {:>8.2f}", value);
      print("  {:>11.3f}\n", half->sample.cpuPerMessage());
      if (options_.histogram) printHistogram(l);
    }
  }
}

// A line for each octave that anything fell into or between, the longest bar 50 characters.
void Report::printHistogram(const Histogram& latency) const {
  constexpr uint64_t kWidth = 50;
  uint64_t most = 1;
  for (uint64_t low = 1; low <= latency.max(); low <<= 1)
    most = std::max(most, latency.countBetween(low, low << 1));
  for (uint64_t low = 1; low <= latency.max(); low <<= 1) {
    if (low << 1 <= latency.min()) continue;
    const uint64_t count = latency.countBetween(low, low << 1);
    const uint64_t length = (count * kWidth + most - 1) / most;
    print("#   {:>10.3f} to {:>10.3f} us  {:>9}  {}\n", inMicroseconds(low), inMicroseconds(low << 1), count,
          std::string(length, '#'));
  }
}

void Report::printDecades() const {
  if (results_.decades.size() < 2) return;
  for (const DecadeRatio& decade : results_.decades)
    print("# {:>12} to {:<12} {:.3f}, over the rounds {:.3f} to {:.3f}{}\n", decade.smallest, decade.largest,
          decade.ratio.median, decade.ratio.low, decade.ratio.high, decade.ratio.differs() ? "  *" : "");
}

void Report::printSummary() const {
  const uint64_t wrong = results_.wrong();
  printDecades();
  if (results_.ratio)
    print("# other / ours in time : {:.3f}, over the rounds {:.3f} to {:.3f}: {}\n", results_.ratio->median,
          results_.ratio->low, results_.ratio->high,
          !results_.ratio->differs()     ? "no difference beyond the spread"
          : results_.ratio->median > 1.0 ? "the other is slower"
                                         : "the other is faster");
  print("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  print("# Avg bus bandwidth    : {:.4f} GB/s\n", results_.averageBusGBps());
  if (results_.operation->movement == Movement::messageRate && !results_.rows.empty()) {
    const Row& row = results_.rows.front();
    print("# Message rate         : {:.4f} million a second of {} bytes, of each sender\n",
          1 / row.outOfPlace->sample.microseconds, row.bytes);
  }
}

Status Report::write() const {
  const auto document = [&](const std::string& path, auto make) {
    return Document{path, path.empty() ? std::string() : make(results_)};
  };
  return writeDocuments({document(options_.json, jsonDocument), document(options_.csv, csvDocument),
                         document(options_.plot, plotDocument)});
}

}  // namespace weft::perf
