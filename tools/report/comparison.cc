// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/report/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

namespace weft::report {

namespace {

constexpr double kNoiseOfCounts = 0.02;
constexpr double kNoiseOfTimes = 0.1;
constexpr double kNoiseOfBuckets = 0.3;  // a value of a histogram is up to a quarter off
constexpr double kFewest = 20;           // messages, for times of them to be compared
constexpr double kFarthest = 100;        // something beside nothing

struct Totals {
  SizeSum sent;
  double waited = 0, made = 0, registering = 0, threads = 0;
};

Totals totalsOf(const Run& run) {
  Totals totals;
  for (const Process& process : run.processes) {
    for (const Flow& flow : process.flows) {
      if (flow.kind == Kind::send) totals.sent += flow.total();
      totals.waited += flow.waitSeconds;
    }
    for (const MemoryUse& use : process.memory) {
      totals.made += use.misses;
      totals.registering += use.seconds;
    }
    for (const ThreadUse& use : process.threads) totals.threads += use.seconds;
  }
  return totals;
}

// Times of a label, where both runs have enough of it.
void addLabels(const Run& first, const Run& second, std::vector<Difference>* all) {
  std::map<std::string, std::pair<LabelRow, LabelRow>> labels;
  for (LabelRow& row : labelRows(first)) labels[row.label].first = row;
  for (LabelRow& row : labelRows(second)) labels[row.label].second = row;
  for (const auto& [label, both] : labels) {
    const auto& [a, b] = both;
    all->push_back({"messages of " + label, "", a.sum.messages, b.sum.messages, true, kNoiseOfCounts});
    const bool enough = static_cast<double>(std::min(a.latency.count(), b.latency.count())) >= kFewest;
    if (!enough) continue;
    for (const auto& [name, share] : {std::pair{"p50 of ", 0.5}, {"p99 of ", 0.99}})
      all->push_back({name + label, "us", a.latency.quantile(share) * 1e6, b.latency.quantile(share) * 1e6,
                      true, kNoiseOfBuckets});
  }
}

void addClasses(const Run& first, const Run& second, std::vector<Difference>* all) {
  std::map<std::pair<std::string, size_t>, std::pair<SizeSum, SizeSum>> classes;
  for (const ClassRow& row : classRows(first)) classes[{row.label, row.number}].first = row.sum;
  for (const ClassRow& row : classRows(second)) classes[{row.label, row.number}].second = row.sum;
  for (const auto& [key, both] : classes) {
    const std::string name = key.first + ", " + nameOfClass(key.second);
    const auto& [a, b] = both;
    all->push_back({"MB of " + name, "MB", a.bytes / 1e6, b.bytes / 1e6, true, kNoiseOfCounts});
    if (std::min(a.timed, b.timed) < kFewest) continue;
    all->push_back({"time of a message of " + name, "us", a.seconds / a.timed * 1e6,
                    b.seconds / b.timed * 1e6, true, kNoiseOfTimes});
  }
}

std::string shown(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

}  // namespace

double Difference::distance() const {
  if (!known || first == second) return 0;
  if (first <= 0 || second <= 0) return std::log(kFarthest);
  const double ratio = std::abs(std::log(second / first));
  return ratio <= std::log1p(noise) ? 0 : std::min(ratio, std::log(kFarthest));
}

std::vector<Difference> differencesOf(const Run& first, const Run& second) {
  const Totals a = totalsOf(first), b = totalsOf(second);
  std::vector<Difference> all;
  const auto processes = [](const Run& run) { return static_cast<double>(run.processes.size()); };
  all.push_back({"processes", "", processes(first), processes(second), true, 0});
  all.push_back({"time", "s", first.seconds(), second.seconds(), true, kNoiseOfTimes});
  all.push_back({"sent", "MB", a.sent.bytes / 1e6, b.sent.bytes / 1e6, true, kNoiseOfCounts});
  if (first.seconds() > 0 && second.seconds() > 0)
    all.push_back({"rate of all sends over the whole time", "MB/s", a.sent.bytes / first.seconds() / 1e6,
                   b.sent.bytes / second.seconds() / 1e6, true, kNoiseOfTimes});
  all.push_back({"waited to begin", "s", a.waited, b.waited, true, kNoiseOfTimes});
  const bool sameSource = first.source == second.source;  // each knows registrations in a way of its own
  all.push_back({"registrations made", "", a.made, b.made, sameSource, kNoiseOfCounts});
  all.push_back({"time of registrations", "s", a.registering, b.registering, sameSource, kNoiseOfTimes});
  all.push_back({"processor time of weft's threads", "s", a.threads, b.threads, sameSource, kNoiseOfTimes});
  addLabels(first, second, &all);
  addClasses(first, second, &all);
  std::stable_sort(all.begin(), all.end(),
                   [](const Difference& x, const Difference& y) { return x.distance() > y.distance(); });
  return all;
}

Section sectionOf(const std::vector<Difference>& differences, const Run& first, const Run& second) {
  Section section{"What differs",
                  "A is " + first.name + ", B is " + second.name +
                      ". What differs most comes first; what differs by no more than its noise comes last.",
                  {{"number", true}, {"unit", true}, {"A"}, {"B"}, {"B is"}},
                  {},
                  {}};
  for (const Difference& one : differences) {
    if (one.first == 0 && one.second == 0) continue;
    std::string change = "the same";
    if (one.distance() > 0 && one.first > 0 && one.second > 0) {
      const double ratio = one.second / one.first;
      change = ratio >= 2    ? fmt::format("{:.3g} times", ratio)
               : ratio < 0.5 ? fmt::format("1/{:.3g}", 1 / ratio)
                             : fmt::format("{:+.1f} %", 100 * (ratio - 1));
    } else if (one.distance() > 0) {
      change = one.first > 0 ? "none" : "new";
    } else if (!one.known) {
      change = "not comparable";
    }
    section.rows.push_back({{one.name},
                            {one.unit},
                            {shown(one.first)},
                            {shown(one.second)},
                            {change, one.distance() / std::log(kFarthest)}});
  }
  return section;
}

}  // namespace weft::report
