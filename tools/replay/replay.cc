// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/replay.h"

#include <deque>

#include <fmt/format.h>

#include "src/base/fnv.h"
#include "tools/netdriver/log_sink.h"
#include "tools/output/output.h"
#include "tools/replay/rank_run.h"

namespace weft::replay {

namespace {

// A loaded plugin and the context of what has none in the trace; it also keeps the plugin initialised.
struct Driven {
  std::unique_ptr<netdriver::Library> library;
  std::unique_ptr<netdriver::Context> context;
  int devices = 0;
};

Result<Driven> openPlugin(const Settings& settings) {
  Driven driven;
  const std::string path = settings.plugin.empty() ? netdriver::defaultPluginPath() : settings.plugin;
  TRY(driven.library, netdriver::Library::open(path, settings.abi));
  TRY(netdriver::Context context, netdriver::Context::create(driven.library->net(), 1));
  driven.context = std::make_unique<netdriver::Context>(std::move(context));
  TRY(netdriver::check(driven.library->net().devices(&driven.devices), netdriver::Call::devices, path));
  if (driven.devices > 0) return driven;
  return Error(Code::unavailable, "open plugin", path + " offers no device; see weft info");
}

// All processes must have read the same.
uint64_t fingerprint(const Plan& plan) {
  uint64_t sum = 0;
  for (const RankPlan& rank : plan.ranks) {
    const auto& memory = *rank.trace.memory;
    sum = sum * 31 + fnv1a({reinterpret_cast<const char*>(memory.data()), memory.size()});
  }
  return sum;
}

Status agreeOn(const Plan& plan, netdriver::Bootstrap& bootstrap) {
  TRY(const auto all, bootstrap.gatherValues(fingerprint(plan)));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return Error(
          Code::config, "rendezvous",
          fmt::format("rank {} was given other traces than rank 0; copy the same to every host", rank));
  return {};
}

Status checkSize(const Plan& plan, const netdriver::Place& place) {
  const size_t traces = plan.ranks.size();
  if (place.size <= 1 || traces == static_cast<size_t>(place.size)) return {};
  return Error(Code::invalidArgument, "command line",
               fmt::format("there are {} traces and {} processes; use -n {}, or one process without -n",
                           traces, place.size, traces));
}

// Plays the ranks of this process.
Result<Times> play(const Settings& settings, const Plan& plan, const netdriver::Place& place, Driven& driven,
                   netdriver::Bootstrap* bootstrap) {
  Board board;
  std::deque<RankRun> runs;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank)
    if (bootstrap == nullptr || static_cast<int>(rank) == place.rank)
      runs.emplace_back(plan.ranks[rank], static_cast<int>(rank), driven.library->net(), *driven.context,
                        board, driven.devices, driven.library->offload(), driven.library->oneSided(),
                        std::chrono::seconds(settings.stallSeconds));
  for (RankRun& run : runs) run.start();
  std::thread waiter([&] {
    for (RankRun& run : runs) {
      run.join();
      board.finishOne();
    }
  });
  Status exchanged;
  if (bootstrap != nullptr) exchanged = board.exchange(*bootstrap, static_cast<int>(runs.size()));
  if (!exchanged) board.fail(exchanged.error().message(), false);
  waiter.join();
  for (RankRun& run : runs) run.finish();
  if (board.failed()) return Error(Code::remote, "replay", board.failure());
  Times times;
  for (const RankRun& run : runs) times.add(run.times());
  return times;
}

Status report(const Settings& settings, const Times& times, const std::string& plugin, size_t ranks) {
  return writeDocuments({{settings.json == "-" ? "" : "-", reportText(times, plugin, ranks)},
                         {settings.json, reportDocument(times, plugin, ranks)}});
}

}  // namespace

Status run(const Settings& settings, const netdriver::Place& place) {
  netdriver::LogSink::instance().setVerbose(settings.verbose);
  TRY(const auto plan, makePlan(settings.traces));
  TRY(checkSize(*plan, place));
  for (const RankPlan& rank : plan->ranks)
    for (const std::string& note : rank.trace.notes)
      if (place.rank <= 0) fmt::print(stderr, "weft perf: {}\n", note);
  std::unique_ptr<netdriver::Bootstrap> bootstrap;
  if (place.size > 1) {
    TRY(bootstrap,
        netdriver::Bootstrap::create(place, Milliseconds(int64_t{settings.timeoutSeconds} * 1000)));
    TRY(agreeOn(*plan, *bootstrap));
  }
  TRY(Driven driven, openPlugin(settings));
  TRY(Times times, play(settings, *plan, place, driven, bootstrap.get()));
  const std::string path = driven.library->path();
  if (bootstrap == nullptr) return report(settings, times, path, plan->ranks.size());
  TRY(const auto all, bootstrap->gatherValuesToRoot(times));
  if (place.rank != 0) return {};
  Times sum;
  for (const Times& one : all) sum.add(one);
  return report(settings, sum, path, plan->ranks.size());
}

}  // namespace weft::replay
