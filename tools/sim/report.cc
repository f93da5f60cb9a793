// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "src/tuner/table_file.h"
#include "tools/json/json.h"
#include "tools/perf/table.h"

namespace weft::sim {

namespace {

// The input of those parts of weft perf that make tables and documents.
struct Shown {
  perf::Options options;
  perf::Results results;
};

perf::Row rowOf(const Setup& setup, const Timed& timed) {
  const perf::Operation& operation = *setup.operation;
  perf::Row row;
  const uint64_t elements = timed.bytes / 4;
  row.count = operation.inParts ? elements / static_cast<uint64_t>(setup.ranks) : elements;
  row.bytes = 4 * (operation.inParts ? row.count * static_cast<uint64_t>(setup.ranks) : row.count);
  row.type = "float";
  row.redop = operation.reduces ? "sum" : "none";
  row.root = operation.rooted ? 0 : -1;
  row.outOfPlace.emplace();
  row.outOfPlace->sample.microseconds = timed.microseconds;
  row.outOfPlace->sample.iterations = setup.iterations;
  row.outOfPlace->sample.messages = timed.messages;
  return row;
}

void fill(const Setup& setup, const Outcome& outcome, Shown* shown) {
  shown->options.check = 0;
  shown->results.options = &shown->options;
  shown->results.operation = setup.operation;
  shown->results.size = setup.ranks;
  for (const Timed& timed : outcome.rows) shown->results.rows.push_back(rowOf(setup, timed));
}

Json fabricJson(const Fabric& fabric) {
  return {{"name", fabric.name},
          {"source", fabric.source},
          {"rails_per_rank", fabric.rails},
          {"rail_GBps", fabric.railGBps},
          {"latency_us", fabric.latencyUs},
          {"message_us", fabric.messageUs},
          {"call_us", fabric.callUs},
          {"processors", fabric.host.processors}};
}

std::string cardsText(const Fabric& fabric) {
  return fmt::format("# fabric  {}: {} x {:g} GB/s a rank, {:g} us from card to card, {:g} us a message\n",
                     fabric.name, fabric.rails, fabric.railGBps, fabric.latencyUs, fabric.messageUs);
}

std::string processorsText(const Fabric& fabric) {
  const tuner::HostCosts& host = fabric.host;
  return fmt::format(
      "# fabric  {}: a processor takes {:g} us and {:g} to {:g} GB/s to send, "
      "{:g} us and {:g} to {:g} GB/s to receive, copies {:g} to {:g} GB/s and reduces {:g} to {:g} GB/s\n",
      fabric.name, host.sendUs, host.far.sendGBps, host.near.sendGBps, host.receiveUs, host.far.receiveGBps,
      host.near.receiveGBps, host.far.copyGBps, host.near.copyGBps, host.far.reduceGBps,
      host.near.reduceGBps);
}

}  // namespace

std::string headerText(const Setup& setup) {
  const Fabric& fabric = setup.fabric;
  const std::string what = setup.operation
                               ? fmt::format("{} ({})", setup.operation->name, setup.operation->algorithm)
                               : std::string("connect");
  std::string text = fmt::format(
      "# weft sim {}: {} ranks on {}, SIMULATED: weft's own protocol, cards that are computed, a "
      "virtual clock\n",
      what, setup.ranks,
      fabric.oneHost() ? fmt::format("one host of {} processors", fabric.host.processors)
                       : std::string("a host each"));
  text += fabric.oneHost() ? processorsText(fabric) : cardsText(fabric);
  text += fmt::format("# source  {}\n", fabric.source);
  if (!setup.operation) return text;
  return text +
         fmt::format("# time    {} iterations after {} to warm up, mean of all ranks\n", setup.iterations,
                     setup.warmup) +
         perf::tableHeader();
}

std::string rowsText(const Setup& setup, const Outcome& outcome) {
  if (!setup.operation) return {};
  Shown shown;
  fill(setup, outcome, &shown);
  std::string text;
  for (const perf::Row& row : shown.results.rows)
    text += perf::keyText(row) + perf::halfText(shown.results, row, row.outOfPlace) +
            perf::halfText(shown.results, row, row.inPlace) + "\n";
  return text +
         fmt::format("# Avg bus bandwidth    : {:.4f} GB/s (simulated)\n", shown.results.averageBusGBps());
}

std::string connectionsText(const Setup& setup, const Outcome& outcome) {
  const double ranks = setup.ranks;
  return fmt::format("# connections {} in {:.1f} us, the first result after {:.1f} us\n", outcome.connections,
                     outcome.connectedUs, outcome.firstResultUs) +
         fmt::format("# control     {} messages, {:.1f} a rank; at most {} links of a rank, a socket each\n",
                     outcome.controlMails, static_cast<double>(outcome.controlMails) / ranks,
                     outcome.mostSockets) +
         fmt::format("# memory      {:.2f} MiB of a rank at most are registered by the protocol\n",
                     static_cast<double>(outcome.mostRegistered) / (1 << 20));
}

std::string jsonOf(const Setup& setup, const Outcome& outcome) {
  Json document = {{"simulated", true},
                   {"operation", setup.operation ? setup.operation->name : "connect"},
                   {"algorithm", setup.operation ? Json(setup.operation->algorithm) : Json()},
                   {"ranks", setup.ranks},
                   {"seed", setup.seed},
                   {"iterations", setup.iterations},
                   {"warmup", setup.warmup},
                   {"fabric", fabricJson(setup.fabric)}};
  document.set("connections", Json{{"count", outcome.connections},
                                   {"time_us", outcome.connectedUs},
                                   {"first_result_us", outcome.firstResultUs},
                                   {"control_messages", outcome.controlMails},
                                   {"links_of_a_rank", outcome.mostSockets},
                                   {"registered_bytes_of_a_rank", outcome.mostRegistered}});
  Shown shown;
  if (setup.operation) fill(setup, outcome, &shown);
  if (setup.operation) document.set("results", perf::jsonRows(shown.results));
  document.set("run", fmt::format("{:016x}", outcome.hash));
  return document.text() + "\n";
}

std::string fitText(const Setup& setup, const OneWay& way) {
  tuner::MeasuredTable table;
  table.provider = "sim:" + setup.fabric.name;
  table.date = "simulated";
  table.hosts = table.ranks = 2;
  table.stepUs = way.stepUs;
  table.deviceGBps = way.cardGBps;
  table.gpus = setup.fabric.ranksPerNode;
  table.devices = setup.fabric.rails * std::max(1, setup.fabric.ranksPerNode);
  table.machine = setup.fabric.machine;
  std::string text = tuner::tableText(table);
  const std::string said = "Written by weft perf --fit.";
  if (const size_t at = text.find(said); at != std::string::npos)
    text.replace(at, said.size(), "Simulated by weft sim --fit, not measured.");
  return text;
}

}  // namespace weft::sim
