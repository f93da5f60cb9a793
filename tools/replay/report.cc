// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include <fmt/format.h>

#include "tools/json/json.h"
#include "tools/replay/replay.h"

namespace weft::replay {

namespace {

double milli(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e6;
}

std::string row(const std::string& name, uint64_t calls, const Compared& times) {
  return fmt::format("{:<32} {:>9} {:>13.3f} {:>13.3f}\n", name, calls, milli(times.replayed),
                     milli(times.recorded));
}

Json json(const Compared& times) {
  return {{"replayed_ns", times.replayed}, {"recorded_ns", times.recorded}};
}

std::vector<CommWait> sorted(const Times& times) {
  std::vector<CommWait> waits;
  for (const CommWait& wait : times.top)
    if (wait.rank >= 0 && wait.requests > 0) waits.push_back(wait);
  std::sort(waits.begin(), waits.end(), [](const CommWait& a, const CommWait& b) {
    return a.nanoseconds.replayed > b.nanoseconds.replayed;
  });
  return waits;
}

}  // namespace

std::string reportText(const Times& times, const std::string& plugin, size_t ranks) {
  std::string text = fmt::format("# weft perf replay: {} ranks over {}\n", ranks, plugin);
  text += fmt::format("# {} messages received, {} bytes, every byte verified\n", times.messages, times.bytes);
  if (times.puts > 0)
    text += fmt::format("# {} puts into windows, {} bytes, found there\n", times.puts, times.putBytes);
  if (times.brokenComms > 0)
    text +=
        fmt::format("# {} comms ended before their last call, as the job aborted them\n", times.brokenComms);
  text += fmt::format("{:<32} {:>9} {:>13} {:>13}\n", "# all ranks together", "calls", "replay(ms)",
                      "recorded(ms)");
  for (size_t i = 0; i < times.kinds.size(); ++i)
    if (times.kinds[i].calls > 0 && times.kinds[i].inside.recorded > 0)
      text += row(fmt::format("in {}", trace::factsOf(static_cast<trace::Kind>(i)).name),
                  times.kinds[i].calls, times.kinds[i].inside);
  const auto calls = [&](trace::Kind kind) { return times.kinds[static_cast<size_t>(kind)].calls; };
  text += row("waiting to be connected", calls(trace::Kind::connect) + calls(trace::Kind::accept),
              times.connecting);
  text += row("waiting to post (not now)", times.notNow.replayed, times.notNowNanoseconds);
  text += row("sends, from post to done", calls(trace::Kind::isend), times.sends);
  text += row("receives, from post to done", calls(trace::Kind::irecv), times.receives);
  const uint64_t collectives =
      calls(trace::Kind::iallreduce) + calls(trace::Kind::iallgather) + calls(trace::Kind::ireducescatter);
  if (collectives > 0) text += row("collectives, from post to done", collectives, times.collectives);
  const uint64_t oneSided =
      calls(trace::Kind::iput) + calls(trace::Kind::iputSignal) + calls(trace::Kind::iget);
  if (oneSided > 0) text += row("puts and gets, from post to done", oneSided, times.oneSided);
  for (const CommWait& wait : sorted(times))
    text += row(fmt::format("  rank {} {} rank {}, comm {}", wait.rank, wait.receives ? "from" : "to",
                            wait.peer, wait.comm),
                wait.requests, wait.nanoseconds);
  text += fmt::format("{:<32} {:>9} {:>13.3f} {:>13.3f}\n", "longest rank, begin to end", "",
                      milli(times.wall.replayed), milli(times.wall.recorded));
  return text;
}

std::string reportDocument(const Times& times, const std::string& plugin, size_t ranks) {
  Json kinds;
  for (size_t i = 0; i < times.kinds.size(); ++i) {
    if (times.kinds[i].calls == 0) continue;
    Json kind = json(times.kinds[i].inside);
    kind.set("calls", times.kinds[i].calls);
    kinds.set(trace::factsOf(static_cast<trace::Kind>(i)).name, kind);
  }
  Json waits = Json::array();
  for (const CommWait& wait : sorted(times))
    waits.append({{"rank", wait.rank},
                  {"peer", wait.peer},
                  {"comm", wait.comm},
                  {"receives", wait.receives},
                  {"requests", wait.requests},
                  {"time", json(wait.nanoseconds)}});
  const Json document{
      {"tool", "weft perf --replay"},
      {"plugin", plugin},
      {"ranks", ranks},
      {"messages", times.messages},
      {"bytes", times.bytes},
      {"puts", times.puts},
      {"put_bytes", times.putBytes},
      {"aborted_comms", times.brokenComms},
      {"calls", kinds},
      {"connecting", json(times.connecting)},
      {"not_now_calls", Json{{"replayed", times.notNow.replayed}, {"recorded", times.notNow.recorded}}},
      {"not_now", json(times.notNowNanoseconds)},
      {"sends", json(times.sends)},
      {"receives", json(times.receives)},
      {"collectives", json(times.collectives)},
      {"one_sided", json(times.oneSided)},
      {"wall", json(times.wall)},
      {"longest_waits", waits}};
  return document.text() + "\n";
}

}  // namespace weft::replay
