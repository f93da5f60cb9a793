// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/json/json.h"
#include "tools/report/report.h"
#include "tools/stats/one_sided_json.h"

namespace weft::report {

namespace {

Json sumJson(const SizeSum& sum) {
  return {
      {"messages", sum.messages}, {"bytes", sum.bytes}, {"timed", sum.timed}, {"seconds", sum.allSeconds()}};
}

Json flowJson(const Flow& flow) {
  Json json{{"operation", flow.operation},
            {"kind", nameOf(flow.kind)},
            {"device", flow.device},
            {"peer", flow.peer},
            {"comms", flow.comms},
            {"busy_seconds", flow.busySeconds},
            {"wait_seconds", flow.waitSeconds},
            {"waits", flow.waits}};
  if (const stats::OneSidedSum& sum = flow.oneSided; sum.any())
    json.set("one_sided", counted::oneSidedJson(sum));
  json.addMembersOf(sumJson(flow.total()));
  for (const auto& [name, share] : {std::pair{"p50_seconds", 0.5}, {"p99_seconds", 0.99}})
    json.set(name, flow.latency.quantile(share));
  return json;
}

Json processJson(const Process& process) {
  Json flows = Json::array(), memory = Json::array(), rails = Json::array(), threads = Json::array();
  for (const Flow& flow : process.flows) flows.append(flowJson(flow));
  for (const MemoryUse& use : process.memory)
    memory.append({{"device", use.device},
                   {"found", use.hits},
                   {"made", use.misses},
                   {"given_back", use.evictions},
                   {"bytes", use.bytes},
                   {"seconds", use.seconds}});
  for (const RailUse& use : process.rails)
    rails.append({{"device", use.device},
                  {"rail", use.rail},
                  {"writes", use.writes},
                  {"bytes", use.bytes},
                  {"bytes_again", use.bytesAgain}});
  for (const ThreadUse& use : process.threads) threads.append({{"name", use.name}, {"seconds", use.seconds}});
  return {{"name", process.name},
          {"begun", process.begun},
          {"seconds", process.seconds},
          {"processor_seconds", process.processorSeconds},
          {"flows", flows},
          {"registrations", memory},
          {"rails", rails},
          {"threads", threads}};
}

Json classesJson(const Run& run) {
  Json rows = Json::array();
  for (const ClassRow& row : classRows(run)) {
    Json json{{"operation", row.label}, {"size", nameOfClass(row.number)}};
    json.addMembersOf(sumJson(row.sum));
    rows.append(json);
  }
  return rows;
}

Json sizesJson(const Run& run, Kind kind) {
  Sizes sizes{};
  for (const Process& process : run.processes)
    for (const Flow& flow : process.flows)
      if (flow.kind == kind)
        for (size_t i = 0; i < sizes.size(); i++) sizes[i] += flow.sizes[i];
  Json rows = Json::array();
  for (size_t i = 0; i < sizes.size(); i++) {
    if (sizes[i].messages == 0) continue;
    Json json{{"up_to_bytes", uint64_t{1} << i}};
    json.addMembersOf(sumJson(sizes[i]));
    rows.append(json);
  }
  return rows;
}

Json runJson(const Run& run) {
  Json processes = Json::array(), pairs = Json::array();
  for (const Process& process : run.processes) processes.append(processJson(process));
  for (const PairRow& pair : pairRows(run))
    pairs.append({{"from", run.processes[pair.from].name}, {"to", pair.to}, {"bytes", pair.bytes}});
  Json json{{"name", run.name},
            {"source", nameOf(run.source)},
            {"seconds", run.seconds()},
            {"processes", processes},
            {"operations", classesJson(run)},
            {"sizes_sent", sizesJson(run, Kind::send)},
            {"sizes_received", sizesJson(run, Kind::receive)},
            {"pairs", pairs},
            {"notes", run.notes}};
  if (!run.rates.all.empty())
    json.set("sent", {{"slice_seconds", run.rates.sliceSeconds}, {"bytes_per_second", run.rates.all}});
  return json;
}

}  // namespace

std::string jsonOf(const Report& report) {
  Json json{{"version", 1}, {"run", runJson(report.first)}};
  if (report.second) {
    json.set("compared_with", runJson(*report.second));
    Json rows = Json::array();
    for (const Difference& one : differencesOf(report.first, *report.second))
      rows.append({{"number", one.name},
                   {"unit", one.unit},
                   {"first", one.first},
                   {"second", one.second},
                   {"differs", one.distance() > 0}});
    json.set("differences", rows);
  }
  return json.text() + "\n";
}

}  // namespace weft::report
