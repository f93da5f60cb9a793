// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <fmt/format.h>

#include "tools/stats/metrics.h"
#include "tools/stats/stats.h"

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

std::string labelsOf(const Process& process) {
  return fmt::format("hostname=\"{}\",uid=\"{}\",pid=\"{}\",place=\"{}\"", escaped(process.host),
                     process.user, process.presence.pid, escaped(process.presence.place));
}

std::string labelsOf(const Process& process, const Comm& comm) {
  return fmt::format("{},device=\"{}\",peer=\"{}\",comm=\"{}\",direction=\"{}\"", labelsOf(process),
                     escaped(comm.device), escaped(comm.peer), comm.number, comm.sends ? "send" : "receive");
}

template <class Line>
void each(const std::vector<Process>& processes, Line line) {
  for (const Process& process : processes)
    for (const Comm& comm : process.comms) line(process, comm);
}

std::string headOf(const char* name, const char* type, const char* help) {
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

std::string processText(const std::vector<Process>& processes) {
  std::string text =
      headOf("weft_process_up", "gauge", "1: the process runs; 0: it is gone, stopped or unknown.");
  for (const Process& process : processes)
    text += fmt::format(
        "weft_process_up{{{}}} {}\n", labelsOf(process),
        process.state == ProcessState::runs || process.state == ProcessState::waitsInKernel ? 1 : 0);
  text +=
      headOf("weft_process_last_beat_timestamp_seconds", "gauge", "When the process was seen alive last.");
  for (const Process& process : processes)
    text += fmt::format("weft_process_last_beat_timestamp_seconds{{{}}} {:.3f}\n", labelsOf(process),
                        static_cast<double>(process.beat) * kOfASecond);
  return text;
}

std::string waysText(const std::vector<Process>& processes) {
  std::string text =
      headOf("weft_messages_total", "counter", "Finished messages, by the way that they took.");
  each(processes, [&](const Process& process, const Comm& comm) {
    for (size_t i = 1; i < stats::kWays; i++)
      text += fmt::format("weft_messages_total{{{},way=\"{}\"}} {}\n", labelsOf(process, comm),
                          name(static_cast<stats::Way>(i)), comm.ways[i]);
  });
  return text;
}

std::string sizesText(const std::vector<Process>& processes) {
  const char* metric = "weft_message_size_bytes";
  std::string text = headOf(metric, "histogram", "Sizes of finished messages.");
  each(processes, [&](const Process& process, const Comm& comm) {
    const std::string labels = labelsOf(process, comm);
    uint64_t below = 0;
    for (size_t i = 0; i + 1 < stats::kSizeClasses; i++) {
      below += comm.sizeMessages[i];
      text += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", metric, labels, uint64_t{1} << i, below);
    }
    text += fmt::format("{0}_bucket{{{1},le=\"+Inf\"}} {2}\n{0}_sum{{{1}}} {3}\n{0}_count{{{1}}} {2}\n",
                        metric, labels, comm.messages, comm.bytes);
  });
  return text;
}

// A metric with the label "quantile" has to be a summary.
std::string latencyText(const std::vector<Process>& processes) {
  const char* metric = "weft_request_latency_seconds";
  std::string text =
      headOf(metric, "summary", "From post to completion of timed requests, over the comm's life.");
  each(processes, [&](const Process& process, const Comm& comm) {
    if (comm.latency.empty()) return;
    const std::string labels = labelsOf(process, comm);
    for (const double share : {0.5, 0.9, 0.99, 0.999})
      text += fmt::format("{}{{{},quantile=\"{}\"}} {:.9f}\n", metric, labels, share,
                          static_cast<double>(comm.quantile(share)) * kOfASecond);
    uint64_t timed = 0, took = 0;
    for (size_t i = 0; i < stats::kSizeClasses; i++) {
      timed += comm.sizeTimed[i];
      took += comm.sizeTime[i];
    }
    text += fmt::format("{0}_sum{{{1}}} {2:.9f}\n{0}_count{{{1}}} {3}\n", metric, labels,
                        static_cast<double>(took) * kOfASecond, timed);
  });
  return text;
}

}  // namespace

std::string prometheusText(const std::vector<Process>& all) {
  const std::vector<Process> processes = withoutDoubles(all);
  std::string text = processText(processes);
  for (const Metric& metric : commMetrics()) {
    text += headOf(metric.name, metric.type, metric.help);
    each(processes, [&](const Process& process, const Comm& comm) {
      text += fmt::format("{}{{{}}} {}\n", metric.name, labelsOf(process, comm), metric.value(comm));
    });
  }
  return text + waysText(processes) + sizesText(processes) + latencyText(processes);
}

}  // namespace weft::counted
