// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/report/sections.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

namespace weft::report {

namespace {

constexpr size_t kMostCurves = 6;
constexpr size_t kMostRows = 12;     // of a table that begins with the largest
constexpr size_t kMostMatrix = 24;   // processes
constexpr double kFewestTimed = 20;  // messages, for a quantile that says something
constexpr double kMega = 1e6;
constexpr double kMicro = 1e6;

// Names of processes without what all of them share: "rank 3" where that is said once.
class ShortNames {
 public:
  explicit ShortNames(const Run& run) {
    std::map<std::string, size_t> times;
    for (const Process& process : run.processes) times[rankOf(process.name)]++;
    for (const Process& process : run.processes)
      if (times[rankOf(process.name)] == 1) names_[process.name] = rankOf(process.name);
  }
  std::string of(const std::string& name) const {
    const auto found = names_.find(name);
    return found == names_.end() ? name : found->second;
  }

 private:
  static std::string rankOf(const std::string& name) {
    return name.starts_with("rank ") ? name.substr(0, name.find(" on ")) : name;
  }
  std::map<std::string, std::string> names_;
};

template <class Take>
void eachFlow(const Run& run, Take take) {
  for (size_t i = 0; i < run.processes.size(); i++)
    for (const Flow& flow : run.processes[i].flows) take(i, flow);
}

// Without an exponent: a column of numbers is read from above.
std::string small(double value, int digits) {
  return value > 0 && value < 0.001 ? fmt::format("{:.6f}", value) : fmt::format("{:.{}g}", value, digits);
}

std::string shownBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits); unit++) bytes /= 1024;
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

size_t classOf(size_t sizeClass) {
  constexpr size_t kEnds[] = {17, 24, 25, 26};  // 128 KiB, 16, 32 and 64 MiB
  return static_cast<size_t>(std::lower_bound(std::begin(kEnds), std::end(kEnds), sizeClass) - kEnds);
}

Section overview(const Run& run) {
  SizeSum sent, received, offload;
  double comms = 0, waited = 0;
  eachFlow(run, [&](size_t, const Flow& flow) {
    if (flow.kind == Kind::send) sent += flow.total();
    if (flow.kind == Kind::receive) received += flow.total();
    if (flow.kind == Kind::offload) offload += flow.total();
    comms += flow.comms;
    waited += flow.waitSeconds;
  });
  Section section{"Overview", "", {{"number", true}, {"value", false}}, {}, {}};
  const auto row = [&](const char* name, const std::string& value) {
    section.rows.push_back({{name}, {value}});
  };
  row("source", nameOf(run.source));
  row("processes", shownCount(static_cast<double>(run.processes.size())));
  row("seconds", shownSeconds(run.seconds()));
  row("messages sent", shownCount(sent.messages));
  row("MB sent", shownMegabytes(sent.bytes));
  row("messages received", shownCount(received.messages));
  row("MB received", shownMegabytes(received.bytes));
  if (offload.messages > 0) row("operations of the network", shownCount(offload.messages));
  if (run.seconds() > 0)
    row("MB/s sent, by all over the whole time", shownMegabytes(sent.bytes / run.seconds()));
  row("seconds waited to begin, of all together", shownSeconds(waited));
  for (const std::string& note : run.notes) section.remark += (section.remark.empty() ? "" : " ") + note;
  return section;
}

Curve curveOf(const std::string& name, const std::vector<double>& rates, double slice, size_t colour) {
  Curve curve{name, {}, true, false, colour, false};
  for (size_t i = 0; i < rates.size(); i++)
    curve.points.emplace_back((static_cast<double>(i) + 0.5) * slice, rates[i] / kMega);
  return curve;
}

std::vector<Cell> ratesRow(const std::string& name, const std::vector<double>& rates) {
  double sum = 0, most = 0, still = 0;
  for (const double rate : rates) {
    sum += rate;
    most = std::max(most, rate);
    still += rate > 0 ? 0 : 1;
  }
  const auto count = static_cast<double>(rates.size());
  const double moving = std::max(1.0, count - still);
  return {{name},
          {shownMegabytes(sum / count)},
          {shownMegabytes(sum / moving)},
          {shownMegabytes(most)},
          {fmt::format("{:.1f}", 100 * still / count)}};
}

Section bandwidth(const Run& run) {
  Section section{"Bandwidth over time",
                  "",
                  {{"process", true}, {"mean MB/s"}, {"while sending"}, {"peak"}, {"% without"}},
                  {},
                  {}};
  if (run.rates.all.empty()) {
    section.remark = run.source == Source::trace
                         ? "Nothing was sent."
                         : "Only traces have times; record the job with libnccl-net-record.so.";
    return section;
  }
  const ShortNames names(run);
  section.remark = fmt::format(
      "Bytes sent, each message spread over the time from its post to its completion, in {} slices of {:.4g} "
      "ms.",
      run.rates.all.size(), run.rates.sliceSeconds * 1e3);
  Chart chart{"sent", "seconds from the first send", "MB/s", false, {}, {}, true};
  chart.curves.push_back(curveOf("all", run.rates.all, run.rates.sliceSeconds, 0));
  section.rows.push_back(ratesRow("all", run.rates.all));
  for (size_t i = 0; i < run.rates.processes.size(); i++) {
    const std::string name = names.of(run.processes[i].name);
    if (run.rates.processes.size() < kMostCurves)
      chart.curves.push_back(curveOf(name, run.rates.processes[i], run.rates.sliceSeconds, i + 1));
    section.rows.push_back(ratesRow(name, run.rates.processes[i]));
  }
  section.drawing.add(chart);
  return section;
}

Section profileTable(const Run& run) {
  Section section{
      "Operations by size",
      "Time is that from post to completion, of all messages added up; messages in flight at the same "
      "time count each. NCCL cuts large operations into messages of its own.",
      {{"operation", true}, {"size", true}, {"calls"}, {"MB"}, {"time s"}, {"each us"}, {"MB/s each"}},
      {},
      {}};
  if (run.source != Source::trace)
    section.remark += " Counters know directions; a trace knows the operation, too.";
  double most = 0;
  const std::vector<ClassRow> rows = classRows(run);
  for (const ClassRow& row : rows) most = std::max(most, row.sum.bytes);
  for (const ClassRow& row : rows) {
    const double time = row.sum.allSeconds();
    section.rows.push_back({{row.label},
                            {nameOfClass(row.number)},
                            {shownCount(row.sum.messages)},
                            {shownMegabytes(row.sum.bytes), most > 0 ? row.sum.bytes / most : 0},
                            {shownSeconds(time)},
                            {shownMicroseconds(row.sum.messages > 0 ? time / row.sum.messages : 0)},
                            {time > 0 ? shownMegabytes(row.sum.bytes / time) : ""}});
  }
  return section;
}

Section messageSizes(const Run& run) {
  Section section{
      "Message sizes", "", {{"up to", true}, {"sent"}, {"MB sent"}, {"received"}, {"MB received"}}, {}, {}};
  Sizes sent{}, received{};
  eachFlow(run, [&](size_t, const Flow& flow) {
    if (flow.kind == Kind::flush) return;
    Sizes& sizes = flow.kind == Kind::receive ? received : sent;
    for (size_t i = 0; i < sizes.size(); i++) sizes[i] += flow.sizes[i];
  });
  Bars bars{"MB by size of the message", {"sent", "received"}, {}};
  for (size_t i = 0; i < sent.size(); i++) {
    if (sent[i].messages + received[i].messages == 0) continue;
    const std::string upTo = i + 1 < sent.size() ? shownBytes(uint64_t{1} << i) : "above";
    section.rows.push_back({{upTo},
                            {shownCount(sent[i].messages)},
                            {shownMegabytes(sent[i].bytes)},
                            {shownCount(received[i].messages)},
                            {shownMegabytes(received[i].bytes)}});
    bars.bars.push_back({upTo, {sent[i].bytes / kMega, received[i].bytes / kMega}});
  }
  if (!bars.bars.empty()) section.drawing.add(bars);
  return section;
}

Section peerList(const Run& run, const std::vector<PairRow>& pairs) {
  const ShortNames names(run);
  Section section{"Who sends to whom",
                  fmt::format("The {} pairs with the most bytes, of {}.", std::min(kMostRows, pairs.size()),
                              pairs.size()),
                  {{"from", true}, {"to", true}, {"MB"}},
                  {},
                  {}};
  for (const PairRow& pair : pairs) {
    if (section.rows.size() == kMostRows) break;
    section.rows.push_back(
        {{names.of(run.processes[pair.from].name)}, {names.of(pair.to)}, {shownMegabytes(pair.bytes)}});
  }
  return section;
}

Section peerMatrix(const Run& run) {
  const std::vector<PairRow> pairs = pairRows(run);
  std::set<std::string> others;
  for (const PairRow& pair : pairs) others.insert(pair.to);
  if (run.processes.size() > kMostMatrix || others.size() > kMostMatrix) return peerList(run, pairs);
  const ShortNames names(run);
  Section section{
      "Who sends to whom", "MB from the process of the row to that of the column.", {{"from", true}}, {}, {}};
  std::vector<std::string> columns;
  for (const Process& process : run.processes)
    if (others.erase(process.name) > 0) columns.push_back(process.name);
  columns.insert(columns.end(), others.begin(), others.end());
  for (const std::string& column : columns) section.columns.push_back({names.of(column)});
  const double most = pairs.empty() ? 0 : pairs.front().bytes;
  for (size_t i = 0; i < run.processes.size(); i++) {
    std::vector<Cell> row{{names.of(run.processes[i].name)}};
    for (const std::string& column : columns) {
      double bytes = 0;
      for (const PairRow& pair : pairs)
        if (pair.from == i && pair.to == column) bytes += pair.bytes;
      row.push_back({bytes > 0 ? shownMegabytes(bytes) : "", most > 0 ? bytes / most : 0});
    }
    section.rows.push_back(std::move(row));
  }
  return section;
}

std::vector<Cell> latencyCells(const std::string& name, const Latency& latency) {
  std::vector<Cell> row{{name}, {shownCount(static_cast<double>(latency.count()))}};
  for (const double share : {0.5, 0.9, 0.99, 0.999})
    row.push_back({shownMicroseconds(latency.quantile(share))});
  return row;
}

Section latencies(const Run& run) {
  Section section{
      "Time from post to completion",
      "In microseconds, of messages that were timed. A receive is posted before its message is sent, "
      "so it waits for the sender, too.",
      {{"operation", true}, {"timed"}, {"p50"}, {"p90"}, {"p99"}, {"p99.9"}},
      {},
      {}};
  Chart chart{"time from post to completion", "% of messages take no longer", "ms", true, {}, {}, true};
  for (const LabelRow& row : labelRows(run)) {
    if (row.latency.count() == 0) continue;
    section.rows.push_back(latencyCells(row.label, row.latency));
    if (chart.curves.size() >= kMostCurves || static_cast<double>(row.latency.count()) < kFewestTimed)
      continue;
    Curve curve{row.label, {}, true, false, chart.curves.size(), false};
    for (double percent = 1; percent < 100.05; percent += percent < 98.5 ? 1 : 0.1)
      curve.points.emplace_back(percent, row.latency.quantile(percent / 100) * 1e3);
    chart.curves.push_back(std::move(curve));
  }
  if (!chart.curves.empty()) section.drawing.add(chart);
  return section;
}

// The flows that a number is largest of, with what is shown of each.
std::vector<std::pair<size_t, const Flow*>> largest(const Run& run, double (*value)(const Flow&)) {
  std::vector<std::pair<size_t, const Flow*>> flows;
  eachFlow(run, [&](size_t process, const Flow& flow) {
    if (value(flow) > 0) flows.emplace_back(process, &flow);
  });
  std::stable_sort(flows.begin(), flows.end(),
                   [value](const auto& a, const auto& b) { return value(*a.second) > value(*b.second); });
  if (flows.size() > kMostRows) flows.resize(kMostRows);
  return flows;
}

Section slowest(const Run& run) {
  const ShortNames names(run);
  Section section{
      "The slowest paths",
      "By the 99th percentile of sends.",
      {{"process", true}, {"peer", true}, {"device", true}, {"operation", true}, {"timed"}, {"p50"}, {"p99"}},
      {},
      {}};
  const auto p99 = [](const Flow& flow) {
    const bool counts = flow.kind == Kind::send && static_cast<double>(flow.latency.count()) >= kFewestTimed;
    return counts ? flow.latency.quantile(0.99) : 0;
  };
  for (const auto& [process, flow] : largest(run, p99))
    section.rows.push_back({{names.of(run.processes[process].name)},
                            {names.of(flow->peer)},
                            {flow->device},
                            {flow->label()},
                            {shownCount(static_cast<double>(flow->latency.count()))},
                            {shownMicroseconds(flow->latency.quantile(0.5))},
                            {shownMicroseconds(flow->latency.quantile(0.99))}});
  return section;
}

Section waits(const Run& run) {
  const ShortNames names(run);
  Section section{
      "Waits",
      "A request was to begin and might not: a send whose receiver had not posted, or had no room.",
      {{"process", true}, {"peer", true}, {"operation", true}, {"waits"}, {"s"}, {"% of the time"}},
      {},
      {}};
  Bars bars{"seconds waited", {}, {}};
  for (const auto& [process, flow] : largest(run, [](const Flow& one) { return one.waitSeconds; })) {
    const Process& of = run.processes[process];
    section.rows.push_back(
        {{names.of(of.name)},
         {names.of(flow->peer)},
         {flow->label()},
         {shownCount(flow->waits)},
         {shownSeconds(flow->waitSeconds)},
         {of.seconds > 0 ? fmt::format("{:.2f}", 100 * flow->waitSeconds / of.seconds) : ""}});
    if (names.of(of.name).size() + names.of(flow->peer).size() < 20)
      bars.bars.push_back({names.of(of.name) + " > " + names.of(flow->peer), {flow->waitSeconds}});
  }
  if (section.rows.empty()) section.remark = "No request had to wait before it began.";
  if (!bars.bars.empty()) section.drawing.add(bars);
  return section;
}

Section devices(const Run& run) {
  struct Sum {
    SizeSum sent, received;
    double busy = 0;
  };
  std::map<std::string, Sum> sums;
  eachFlow(run, [&](size_t, const Flow& flow) {
    if (flow.kind != Kind::send && flow.kind != Kind::receive) return;
    Sum& sum = sums[flow.device];
    (flow.kind == Kind::send ? sum.sent : sum.received) += flow.total();
    sum.busy += flow.busySeconds;
  });
  Section section{"Devices",
                  "",
                  {{"device", true}, {"sent"}, {"MB sent"}, {"received"}, {"MB received"}, {"busy s"}},
                  {},
                  {}};
  for (const auto& [device, sum] : sums)
    section.rows.push_back({{device},
                            {shownCount(sum.sent.messages)},
                            {shownMegabytes(sum.sent.bytes)},
                            {shownCount(sum.received.messages)},
                            {shownMegabytes(sum.received.bytes)},
                            {sum.busy > 0 ? shownSeconds(sum.busy) : ""}});
  return section;
}

Section oneSided(const Run& run) {
  const ShortNames names(run);
  using Pair = std::tuple<std::string, std::string, bool>;  // process, peer, sent
  std::map<Pair, stats::OneSidedSum> sums;
  eachFlow(run, [&](size_t process, const Flow& flow) {
    if (flow.oneSided.any())
      sums[{names.of(run.processes[process].name), names.of(flow.peer), flow.kind == Kind::send}] +=
          flow.oneSided;
  });
  std::vector<std::pair<Pair, stats::OneSidedSum>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.putBytes + a.second.getBytes > b.second.putBytes + b.second.getBytes;
  });
  Section section{"One-sided operations",
                  "By the direction of their bytes: puts by a process, and gets of its peer, are sent. Their "
                  "messages are in the other tables, too.",
                  {{"process", true},
                   {"direction", true},
                   {"peer", true},
                   {"puts"},
                   {"MB put"},
                   {"gets"},
                   {"MB got"},
                   {"signals"}},
                  {},
                  {}};
  if (rows.size() > kMostRows) {
    section.remark += fmt::format(" The {} rows with the most bytes, of {}.", kMostRows, rows.size());
    rows.resize(kMostRows);
  }
  for (const auto& [key, sum] : rows)
    section.rows.push_back({{std::get<0>(key)},
                            {std::get<2>(key) ? "sent" : "received"},
                            {std::get<1>(key)},
                            {shownCount(static_cast<double>(sum.puts))},
                            {shownMegabytes(static_cast<double>(sum.putBytes))},
                            {shownCount(static_cast<double>(sum.gets))},
                            {shownMegabytes(static_cast<double>(sum.getBytes))},
                            {shownCount(static_cast<double>(sum.signals))}});
  return section;
}

// Of devices with several: one that carries less than the others is slow, or was away.
Section rails(const Run& run) {
  std::map<std::pair<std::string, std::string>, RailUse> sums;
  std::map<std::string, double> whole;
  for (const Process& process : run.processes)
    for (const RailUse& use : process.rails) {
      RailUse& sum = sums[{use.device, use.rail}];
      sum.writes += use.writes;
      sum.bytes += use.bytes;
      sum.bytesAgain += use.bytesAgain;
      whole[use.device] += use.bytes;
    }
  Section section{
      "Rails",
      "",
      {{"device", true}, {"rail", true}, {"writes"}, {"MB sent"}, {"% of the device"}, {"MB again"}},
      {},
      {}};
  for (const auto& [key, sum] : sums)
    section.rows.push_back({{key.first},
                            {key.second},
                            {shownCount(sum.writes)},
                            {shownMegabytes(sum.bytes)},
                            {small(100 * sum.bytes / std::max(1.0, whole[key.first]), 3)},
                            {sum.bytesAgain > 0 ? shownMegabytes(sum.bytesAgain) : ""}});
  return section;
}

Section memoryUse(const Run& run) {
  std::map<std::string, MemoryUse> sums;
  for (const Process& process : run.processes)
    for (const MemoryUse& use : process.memory) {
      MemoryUse& sum = sums[use.device];
      sum.hits += use.hits;
      sum.misses += use.misses;
      sum.evictions += use.evictions;
      sum.bytes += use.bytes;
      sum.seconds += use.seconds;
    }
  Section section{"Registrations",
                  run.source == Source::trace
                      ? "A trace has NCCL's calls; which of them a cache answered is not in it."
                      : "",
                  {{"device", true}, {"found"}, {"made"}, {"given back"}, {"MB made"}, {"time s"}},
                  {},
                  {}};
  for (const auto& [device, sum] : sums)
    section.rows.push_back({{device},
                            {shownCount(sum.hits)},
                            {shownCount(sum.misses)},
                            {shownCount(sum.evictions)},
                            {shownMegabytes(sum.bytes)},
                            {shownSeconds(sum.seconds)}});
  return section;
}

Section threads(const Run& run) {
  const ShortNames names(run);
  Section section{"Processor time",
                  "Of the threads that weft has of its own; NCCL's threads do the rest of its work.",
                  {{"process", true}, {"thread", true}, {"s"}, {"% of the time"}},
                  {},
                  {}};
  const auto row = [&](const Process& process, const std::string& name, double seconds) {
    section.rows.push_back(
        {{names.of(process.name)},
         {name},
         {shownSeconds(seconds)},
         {process.seconds > 0 ? fmt::format("{:.2f}", 100 * seconds / process.seconds) : ""}});
  };
  for (const Process& process : run.processes) {
    for (const ThreadUse& use : process.threads) row(process, use.name, use.seconds);
    if (process.processorSeconds > 0) row(process, "the whole process", process.processorSeconds);
  }
  return section;
}

}  // namespace

const char* nameOfClass(size_t number) {
  constexpr const char* kNames[] = {"up to 128 KiB", "128 KiB to 16 MiB", "16 to 32 MiB", "32 to 64 MiB",
                                    "above 64 MiB"};
  static_assert(std::size(kNames) == kClasses);
  return kNames[number];
}

std::vector<ClassRow> classRows(const Run& run) {
  std::map<std::pair<std::string, size_t>, SizeSum> sums;
  eachFlow(run, [&](size_t, const Flow& flow) {
    for (size_t i = 0; i < flow.sizes.size(); i++)
      if (flow.sizes[i].messages > 0) sums[{flow.label(), classOf(i)}] += flow.sizes[i];
  });
  std::vector<ClassRow> rows;
  for (const auto& [key, sum] : sums) rows.push_back({key.first, key.second, sum});
  return rows;
}

std::vector<LabelRow> labelRows(const Run& run) {
  std::map<std::string, LabelRow> labels;
  eachFlow(run, [&](size_t, const Flow& flow) {
    LabelRow& row = labels[flow.label()];
    row.label = flow.label();
    row.sum += flow.total();
    row.latency += flow.latency;
  });
  std::vector<LabelRow> rows;
  for (auto& [label, row] : labels) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const LabelRow& a, const LabelRow& b) { return a.sum.bytes > b.sum.bytes; });
  return rows;
}

std::vector<PairRow> pairRows(const Run& run) {
  std::map<std::pair<size_t, std::string>, double> sums;
  eachFlow(run, [&](size_t process, const Flow& flow) {
    if (flow.kind == Kind::send || flow.kind == Kind::offload)
      sums[{process, flow.peer}] += flow.total().bytes;
  });
  std::vector<PairRow> rows;
  for (const auto& [key, bytes] : sums) rows.push_back({key.first, key.second, bytes});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const PairRow& a, const PairRow& b) { return a.bytes > b.bytes; });
  return rows;
}

std::string shownCount(double value) {
  return fmt::format("{:.0f}", value);
}

std::string shownMegabytes(double bytes) {
  const double value = bytes / kMega;
  return value >= 100 ? fmt::format("{:.0f}", value) : small(value, 3);
}

std::string shownSeconds(double seconds) {
  return seconds >= 100 ? fmt::format("{:.0f}", seconds) : small(seconds, 4);
}

std::string shownMicroseconds(double seconds) {
  const double value = seconds * kMicro;
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::vector<Section> sectionsOf(const Run& run) {
  std::vector<Section> sections{overview(run),   profileTable(run), bandwidth(run), messageSizes(run),
                                peerMatrix(run), latencies(run),    slowest(run),   waits(run),
                                devices(run),    rails(run),        oneSided(run),  memoryUse(run),
                                threads(run)};
  std::erase_if(sections, [](const Section& one) {
    return one.rows.empty() && one.title != "Waits" && one.title != "Bandwidth over time";
  });
  return sections;
}

}  // namespace weft::report
