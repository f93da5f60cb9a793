// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>

#include <fmt/format.h>

#include "tools/json/json.h"
#include "tools/perf/results.h"

namespace weft::perf {

namespace {

struct Percentile {
  const char* name;
  double share;
};
constexpr std::array kPercentiles = {Percentile{"p50_us", 0.5}, Percentile{"p90_us", 0.9},
                                     Percentile{"p99_us", 0.99}, Percentile{"p999_us", 0.999}};

Json latencyOf(const Histogram& latency) {
  Json json = {{"count", latency.count()},
               {"min_us", inMicroseconds(latency.min())},
               {"max_us", inMicroseconds(latency.max())}};
  for (const Percentile& p : kPercentiles) json.set(p.name, inMicroseconds(latency.quantile(p.share)));
  // By octaves: enough for a shape, and few enough to read.
  Json octaves = Json::array();
  for (uint64_t low = 1; low <= latency.max() && low != 0; low <<= 1)
    if (const uint64_t count = latency.countBetween(low, low << 1); count > 0)
      octaves.append(
          {{"from_us", inMicroseconds(low)}, {"below_us", inMicroseconds(low << 1)}, {"count", count}});
  json.set("histogram", std::move(octaves));
  return json;
}

Json sampleOf(const Results& results, const Row& row, const Sample& sample) {
  Json json = {{"time_us", sample.microseconds},
               {"iterations", sample.iterations},
               {"algbw_gbps", results.algorithmGBps(row, sample)},
               {"busbw_gbps", results.busGBps(row, sample)},
               {"messages", sample.messages},
               {"cpu_us_per_message", sample.cpuPerMessage()},
               {"latency", latencyOf(sample.latency)}};
  const bool verified = results.options->check != 0;
  json.set("wrong", verified ? Json(sample.wrong) : Json());
  return json;
}

Json ratioOf(const Ratio& ratio) {
  return {{"median", ratio.median}, {"low", ratio.low}, {"high", ratio.high}, {"differs", ratio.differs()}};
}

Json halfOf(const Results& results, const Row& row, const RowHalf& half) {
  Json json = sampleOf(results, row, half.sample);
  if (half.other) {
    json.set("other", sampleOf(results, row, *half.other));
    json.set("ratio", ratioOf(half.ratio));
  }
  return json;
}

Json conditionsOf(const Results& results) {
  const Conditions& c = results.conditions;
  const Options& options = *results.options;
  Json json = {{"operation", results.operation->name},
               {"algorithm", results.operation->algorithm},
               {"processes", results.size},
               {"hosts", c.hosts},
               {"processes_here", c.ranksHere},
               {"date", c.date},
               {"host", c.host},
               {"host_names", c.names},
               {"processor", c.processor},
               {"processors", c.processors},
               {"plugin", c.plugin},
               {"table", c.table},
               {"fabric", c.fabric.empty() ? Json() : Json(c.fabric)},
               {"settings", c.settings},
               {"device_number", c.deviceNumber},
               {"device", c.device},
               {"device_mbps", c.speedMbps},
               {"build", c.build},
               {"check", options.check},
               {"iterations", options.iterations},
               {"warmup", options.warmup},
               {"channels", options.channels},
               {"communicators", options.communicators},
               {"threads", options.threadsInUse()},
               {"group", options.group},
               {"buffer_bytes", options.bufferBytes},
               {"p2p_chunk_bytes", options.p2pChunkBytes},
               {"warnings", c.warnings}};
  if (!c.other.empty()) {
    json.set("other_plugin", c.other);
    json.set("other_fabric", c.otherFabric.empty() ? Json() : Json(c.otherFabric));
    json.set("other_settings", options.compareEnvironment);
    json.set("rounds", options.rounds);
  }
  return json;
}

std::string wrongOf(const Results& results, const Sample& sample) {
  return results.options->check != 0 ? std::to_string(sample.wrong) : std::string();
}

std::string csvHalf(const Results& results, const Row& row, const char* place, const RowHalf& half) {
  const Sample& s = half.sample;
  std::string line = fmt::format("{},{},{},{},{},{},{},{},{},{},{},{:.3f},{:.6f},{:.6f},{}",
                                 results.operation->name, results.operation->algorithm, results.size,
                                 results.options->communicators, results.options->threadsInUse(), row.bytes,
                                 row.count, row.type, row.redop, row.root, place, s.microseconds,
                                 results.algorithmGBps(row, s), results.busGBps(row, s), wrongOf(results, s));
  line += fmt::format(",{:.3f}", inMicroseconds(s.latency.min()));
  for (const Percentile& p : kPercentiles)
    line += fmt::format(",{:.3f}", inMicroseconds(s.latency.quantile(p.share)));
  line += fmt::format(",{:.3f},{},{:.4f}", inMicroseconds(s.latency.max()), s.messages, s.cpuPerMessage());
  if (half.other)
    line += fmt::format(",{:.3f},{:.4f},{:.4f},{:.4f},{}", half.other->microseconds, half.ratio.median,
                        half.ratio.low, half.ratio.high, wrongOf(results, *half.other));
  return line + "\n";
}

}  // namespace

Json jsonRows(const Results& results) {
  Json rows = Json::array();
  for (const Row& row : results.rows) {
    Json json = {{"bytes", row.bytes}, {"count", row.count},     {"type", row.type},  {"redop", row.redop},
                 {"root", row.root},   {"out_of_place", Json()}, {"in_place", Json()}};
    for (const auto& [place, half] : halvesOf(row)) json.set(place, halfOf(results, row, *half));
    rows.append(std::move(json));
  }
  return rows;
}

std::string jsonDocument(const Results& results) {
  Json summary = {{"wrong", results.wrong()}, {"average_busbw_gbps", results.averageBusGBps()}};
  if (results.ratio) {
    Json decades = Json::array();
    for (const DecadeRatio& decade : results.decades)
      decades.append(
          {{"smallest", decade.smallest}, {"largest", decade.largest}, {"ratio", ratioOf(decade.ratio)}});
    summary.set("ratio", ratioOf(*results.ratio));
    summary.set("decades", std::move(decades));
  }
  Json document = {{"complete", results.endedBy.empty()},
                   {"conditions", conditionsOf(results)},
                   {"results", jsonRows(results)},
                   {"summary", summary}};
  if (!results.endedBy.empty()) document.set("ended_by", results.endedBy);
  return document.text() + "\n";
}

std::string csvDocument(const Results& results) {
  std::string text =
      "operation,algorithm,processes,communicators,threads,bytes,count,type,redop,root,place,time_us,"
      "algbw_gbps,busbw_gbps,wrong,min_us";
  for (const Percentile& p : kPercentiles) text += std::string(",") + p.name;
  text += ",max_us,messages,cpu_us_per_message";
  if (!results.conditions.other.empty()) text += ",other_time_us,ratio,ratio_low,ratio_high,other_wrong";
  text += "\n";
  for (const Row& row : results.rows)
    for (const auto& [place, half] : halvesOf(row)) text += csvHalf(results, row, place, *half);
  if (!results.endedBy.empty()) text += "# incomplete: " + results.endedBy + "\n";
  return text;
}

}  // namespace weft::perf
