// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "tools/stats/metrics.h"
#include "tools/stats/stats.h"
#include "tools/stats/totals.h"

// Metrics in the text format of Prometheus: base units, counters end in _total, HELP and TYPE before each.
namespace weft::counted {

namespace {

constexpr double kOfASecond = 1e-9;

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\' || c == '"') safe += '\\';
    if (c == '\n') {
      safe += "\\n";
    } else {
      safe += c;
    }
  }
  return safe;
}

// A line of each metric: its labels, and the counts that it shows.
struct Series {
  std::string labels;
  const Comm* comm = nullptr;
};
using AllSeries = std::vector<Series>;

// A process, or all of a rank's.
struct Sighting {
  std::string labels;
  bool up = false;
  uint64_t beat = 0;
};

// How much of a distribution is shown. Comms have all of it; of a rank a few numbers are kept.
struct Detail {
  std::vector<size_t> sizes;  // the classes that end a bucket
  std::vector<double> shares;
};

Detail wholeDetail() {
  Detail detail{{}, {0.5, 0.9, 0.99, 0.999}};
  for (size_t i = 0; i + 1 < stats::kSizeClasses; i++) detail.sizes.push_back(i);
  return detail;
}

// Buckets up to 4 KiB, 64 KiB, 1 MiB and 16 MiB.
Detail fewDetail() {
  return {{12, 16, 20, 24}, {0.5, 0.99}};
}

std::string labelsOf(const std::string& job, const std::string& rank, uint32_t user) {
  return fmt::format("job=\"{}\",rank=\"{}\",uid=\"{}\"", escaped(job), escaped(rank), user);
}

std::string labelsOf(const Process& process) {
  return fmt::format("{},hostname=\"{}\",pid=\"{}\",place=\"{}\"",
                     labelsOf(process.job, rankOf(process), process.user), escaped(process.host),
                     process.presence.pid, escaped(process.presence.place));
}

std::string labelsOf(const Process& process, const Comm& comm) {
  return fmt::format("{},device=\"{}\",peer=\"{}\",comm=\"{}\",direction=\"{}\"", labelsOf(process),
                     escaped(comm.device), escaped(comm.peer), comm.number, comm.sends ? "send" : "receive");
}

std::string headOf(const char* name, const char* type, const char* help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string presenceText(const std::vector<Sighting>& all) {
  std::string text =
      headOf("weft_process_up", "gauge", "1: the process runs; 0: it is gone, stopped or unknown.");
  for (const Sighting& one : all)
    text += fmt::format("weft_process_up{{{}}} {}\n", one.labels, one.up ? 1 : 0);
  text +=
      headOf("weft_process_last_beat_timestamp_seconds", "gauge", "When the process was seen alive last.");
  for (const Sighting& one : all)
    text += fmt::format("weft_process_last_beat_timestamp_seconds{{{}}} {:.3f}\n", one.labels,
                        static_cast<double>(one.beat) * kOfASecond);
  return text;
}

// Operations between windows that nobody does have no line: most jobs have none.
std::string metricText(const Metric& metric, const AllSeries& all) {
  const auto isZero = [&](const Series& one) { return metric.value(*one.comm) == 0; };
  if (metric.oneSided && std::all_of(all.begin(), all.end(), isZero)) return {};
  std::string text = headOf(metric.name, metric.type, metric.help);
  for (const Series& one : all)
    text += fmt::format("{}{{{}}} {}\n", metric.name, one.labels, metric.value(*one.comm));
  return text;
}

std::string waysText(const AllSeries& all) {
  std::string text =
      headOf("weft_messages_total", "counter", "Finished messages, by the way that they took.");
  for (const Series& one : all)
    for (size_t i = 1; i < stats::kWays; i++)
      text += fmt::format("weft_messages_total{{{},way=\"{}\"}} {}\n", one.labels,
                          name(static_cast<stats::Way>(i)), one.comm->ways[i]);
  return text;
}

std::string sizesText(const AllSeries& all, const Detail& detail) {
  const char* metric = "weft_message_size_bytes";
  std::string text = headOf(metric, "histogram", "Sizes of finished messages.");
  for (const Series& one : all) {
    for (const size_t last : detail.sizes) {
      const uint64_t below = std::accumulate(
          one.comm->sizeMessages.begin(),
          one.comm->sizeMessages.begin() + static_cast<std::ptrdiff_t>(last) + 1, uint64_t{0});
      text += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", metric, one.labels, uint64_t{1} << last, below);
    }
    text += fmt::format("{0}_bucket{{{1},le=\"+Inf\"}} {2}\n{0}_sum{{{1}}} {3}\n{0}_count{{{1}}} {2}\n",
                        metric, one.labels, one.comm->messages, one.comm->bytes);
  }
  return text;
}

// A metric with the label "quantile" has to be a summary.
std::string latencyText(const AllSeries& all, const Detail& detail) {
  const char* metric = "weft_request_latency_seconds";
  std::string text =
      headOf(metric, "summary", "From post to completion of timed requests, over the comm's life.");
  for (const Series& one : all) {
    if (one.comm->latency.empty()) continue;
    for (const double share : detail.shares)
      text += fmt::format("{}{{{},quantile=\"{}\"}} {:.9f}\n", metric, one.labels, share,
                          static_cast<double>(one.comm->quantile(share)) * kOfASecond);
    uint64_t timed = 0, took = 0;
    for (size_t i = 0; i < stats::kSizeClasses; i++) {
      timed += one.comm->sizeTimed[i];
      took += one.comm->sizeTime[i];
    }
    text += fmt::format("{0}_sum{{{1}}} {2:.9f}\n{0}_count{{{1}}} {3}\n", metric, one.labels,
                        static_cast<double>(took) * kOfASecond, timed);
  }
  return text;
}

std::string textOf(const AllSeries& all, const Detail& detail) {
  std::string text;
  for (const Metric& metric : commMetrics()) text += metricText(metric, all);
  return text + waysText(all) + sizesText(all, detail) + latencyText(all, detail);
}

std::string commsText(const std::vector<Process>& processes) {
  std::vector<Sighting> present;
  AllSeries all;
  for (const Process& process : processes) {
    const bool up = process.state == ProcessState::runs || process.state == ProcessState::waitsInKernel;
    present.push_back({labelsOf(process), up, process.beat});
    for (const Comm& comm : process.comms) all.push_back({labelsOf(process, comm), &comm});
  }
  return presenceText(present) + textOf(all, wholeDetail());
}

std::string ranksText(const std::vector<RankTotals>& ranks) {
  std::vector<Sighting> present;
  AllSeries all;
  std::string comms = headOf("weft_comms", "gauge", "Connections that live.");
  for (const RankTotals& rank : ranks) {
    const std::string ofRank = labelsOf(rank.job, rank.rank, rank.user);
    present.push_back({ofRank, rank.up, rank.beat});
    for (const Flow& flow : rank.flows) {
      const std::string labels = fmt::format("{},device=\"{}\",direction=\"{}\"", ofRank,
                                             escaped(flow.device), flow.sends ? "send" : "receive");
      comms += fmt::format("weft_comms{{{}}} {}\n", labels, flow.comms);
      all.push_back({labels, &flow.sum});
    }
  }
  return presenceText(present) + comms + textOf(all, fewDetail());
}

}  // namespace

std::string prometheusText(const std::vector<Process>& all, bool perComm) {
  const std::vector<Process> processes = withoutDoubles(all);
  return perComm ? commsText(processes) : ranksText(totalsOf(processes));
}

}  // namespace weft::counted
