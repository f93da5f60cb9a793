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
constexpr double kMegabyte = 1e6;
constexpr double kFewest = 20;     // messages, for times of them to be compared
constexpr double kFarthest = 100;  // something beside nothing

struct Totals {
  SizeSum all;  // of either direction
  SizeSum sent;
  double waited = 0, made = 0, registering = 0, threads = 0;
  double seconds = 0;  // of all processes together
};

Totals totalsOf(const Run& run) {
  Totals totals;
  for (const Process& process : run.processes) {
    totals.seconds += process.seconds;
    for (const Flow& flow : process.flows) {
      totals.all += flow.total();
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

// A part in its whole, in the run where that is larger; its root, so that small parts are not lost at once.
double weightOf(double part, double whole, double otherPart, double otherWhole) {
  const double share = std::max(whole > 0 ? part / whole : 0, otherWhole > 0 ? otherPart / otherWhole : 0);
  return std::sqrt(std::min(1.0, share));
}

Run withoutOperations(Run run) {
  for (Process& process : run.processes)
    for (Flow& flow : process.flows) flow.operation.clear();
  return run;
}

// Times of a label, where both runs have enough of it.
void addLabels(const Run& first, const Run& second, std::vector<Difference>* all) {
  const double messages = totalsOf(first).all.messages;
  const double others = totalsOf(second).all.messages;
  std::map<std::string, std::pair<LabelRow, LabelRow>> labels;
  for (LabelRow& row : labelRows(first)) labels[row.label].first = row;
  for (LabelRow& row : labelRows(second)) labels[row.label].second = row;
  for (const auto& [label, both] : labels) {
    const auto& [a, b] = both;
    const double weight = weightOf(a.sum.messages, messages, b.sum.messages, others);
    all->push_back(
        {"messages of " + label, "", a.sum.messages, b.sum.messages, true, kNoiseOfCounts, weight});
    const bool enough = static_cast<double>(std::min(a.latency.count(), b.latency.count())) >= kFewest;
    if (!enough) continue;
    for (const auto& [name, share] : {std::pair{"p50 of ", 0.5}, {"p99 of ", 0.99}})
      all->push_back({name + label, "us", a.latency.quantile(share) * 1e6, b.latency.quantile(share) * 1e6,
                      true, kNoiseOfBuckets, weight});
  }
}

void addClasses(const Run& first, const Run& second, std::vector<Difference>* all) {
  std::map<std::pair<std::string, size_t>, std::pair<SizeSum, SizeSum>> classes;
  for (const ClassRow& row : classRows(first)) classes[{row.label, row.number}].first = row.sum;
  for (const ClassRow& row : classRows(second)) classes[{row.label, row.number}].second = row.sum;
  const double bytes = totalsOf(first).all.bytes;
  const double others = totalsOf(second).all.bytes;
  for (const auto& [key, both] : classes) {
    const std::string name = key.first + ", " + nameOfClass(key.second);
    const auto& [a, b] = both;
    const double weight = weightOf(a.bytes, bytes, b.bytes, others);
    all->push_back({"MB of " + name, "MB", a.bytes / 1e6, b.bytes / 1e6, true, kNoiseOfCounts, weight});
    if (std::min(a.timed, b.timed) < kFewest) continue;
    all->push_back({"time of a message of " + name, "us", a.seconds / a.timed * 1e6,
                    b.seconds / b.timed * 1e6, true, kNoiseOfTimes, weight});
  }
}

std::string shown(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

void addTotals(const Run& first, const Run& second, std::vector<Difference>* all) {
  const Totals a = totalsOf(first), b = totalsOf(second);
  const auto processes = [](const Run& run) { return static_cast<double>(run.processes.size()); };
  all->push_back({"processes", "", processes(first), processes(second), true, 0});
  all->push_back({"time", "s", first.seconds(), second.seconds(), true, kNoiseOfTimes});
  all->push_back({"sent", "MB", a.sent.bytes / kMegabyte, b.sent.bytes / kMegabyte, true, kNoiseOfCounts});
  if (first.seconds() > 0 && second.seconds() > 0)
    all->push_back({"rate of all sends over the whole time", "MB/s",
                    a.sent.bytes / first.seconds() / kMegabyte, b.sent.bytes / second.seconds() / kMegabyte,
                    true, kNoiseOfTimes});
  const auto span = [&](const char* name, double one, double other, bool known) {
    all->push_back({name, "s", one, other, known, kNoiseOfTimes, weightOf(one, a.seconds, other, b.seconds)});
  };
  span("waited to begin", a.waited, b.waited, true);
  const bool sameSource = first.source == second.source;  // each knows registrations in a way of its own
  const double registering = weightOf(a.registering, a.seconds, b.registering, b.seconds);
  all->push_back({"registrations made", "", a.made, b.made, sameSource, kNoiseOfCounts, registering});
  span("time of registrations", a.registering, b.registering, sameSource);
  span("processor time of weft's threads", a.threads, b.threads, sameSource);
}

}  // namespace

double Difference::distance() const {
  if (!known || first == second) return 0;
  if (first <= 0 || second <= 0) return std::log(kFarthest);
  const double ratio = std::abs(std::log(second / first));
  return ratio <= std::log1p(noise) ? 0 : std::min(ratio, std::log(kFarthest));
}

std::vector<Difference> differencesOf(const Run& first, const Run& second) {
  const bool sameSource = first.source == second.source;
  const Run a = sameSource ? first : withoutOperations(first);
  const Run b = sameSource ? second : withoutOperations(second);
  std::vector<Difference> all;
  addTotals(a, b, &all);
  addLabels(a, b, &all);
  addClasses(a, b, &all);
  std::stable_sort(all.begin(), all.end(), [](const Difference& x, const Difference& y) {
    const bool differs = x.distance() > 0, other = y.distance() > 0;
    return differs != other ? differs : x.distance() * x.weight > y.distance() * y.weight;
  });
  return all;
}

Section sectionOf(const std::vector<Difference>& differences, const Run& first, const Run& second) {
  Section section{"What differs",
                  "A is " + first.name + ", B is " + second.name +
                      ". The largest differences come first, weighed by how much of the run they are of; "
                      "those within noise come last.",
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
                            {change, one.distance() * one.weight / std::log(kFarthest)}});
  }
  return section;
}

}  // namespace weft::report
