// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "tests/bench/connections.h"
#include "tests/bench/copy_end.h"
#include "tests/bench/measures.h"
#include "tests/bench/plugin_end.h"
#include "tests/bench/raw_end.h"
#include "tests/bench/seam_end.h"
#include "tests/bench/socket_end.h"

// usage: bench-end raw-write|raw-inject|raw-tagged|socket|copy-once|copy-twice|seam[:PROVIDER] CHANNELS
//        bench-end PLUGIN.so CHANNELS         0: none yet, and none back
//        bench-end --build                    prints how it was compiled
//
// Two processes and one way between them, for the scripts beside this file: a line on stdin says what to
// measure, a line on stdout is the answer. While it waits for a line it uses no processor, so several of them
// can be measured in turn, each for a moment. Commands, lengths in bytes and times in microseconds:
//   hello                                  what the way is
//   latency BYTES ROUNDS                   half round trip: median, 99th percentile, least
//   stream BYTES WINDOW CHANNELS COUNT     time for COUNT messages over CHANNELS, WINDOW in flight on each;
//                                          how many it were
// And for plugins:
//   open COUNT                             so many channels more, at once: time until they stand, and until
//   each
//                                          brought its first message; the share as below
//   communicator                           channels opened from now on belong to another one
//   singles COUNT                          the same one after the other: of each, time until its first
//   message and share back                                   the channel from the second process to the
//   first, where CHANNELS was 0 exercise BYTES                         a message on every channel state
//   resident KiB, descriptors and threads, of the first and the second
// Measures end their answer with the share of the time in which both processes had a processor: neither ever
// sleeps, so below 1 something else was running and the numbers are about that, too.
using namespace weft;
using namespace weft::bench;

namespace {

constexpr unsigned kStartSeconds = 60;
constexpr unsigned kCommandSeconds = 60;
constexpr size_t kMostChannels = 10000;

std::unique_ptr<End> openWay(const std::string& way, const Shape& shape, const Companion& companion) {
  if (way == "raw-write") return std::make_unique<RawEnd>(RawStyle::write, shape, companion);
  if (way == "raw-inject") return std::make_unique<RawEnd>(RawStyle::inject, shape, companion);
  if (way == "raw-tagged") return std::make_unique<RawEnd>(RawStyle::tagged, shape, companion);
  if (way == "copy-once") return std::make_unique<CopyEnd>(CopyStyle::once, shape, companion);
  if (way == "copy-twice") return std::make_unique<CopyEnd>(CopyStyle::twice, shape, companion);
  if (way == "socket") return std::make_unique<SocketEnd>(shape, companion);
  constexpr std::string_view kSeamOf = "seam:";
  if (way.starts_with(kSeamOf)) ::setenv("WEFT_PROVIDER", way.substr(kSeamOf.size()).c_str(), 1);
  if (way == "seam" || way.starts_with(kSeamOf)) return std::make_unique<SeamEnd>(shape, companion);
  auto plugin = std::make_unique<PluginEnd>(way, companion);
  if (shape.outgoing > 0 && shape.incoming > 0) plugin->connect(shape);
  return plugin;
}

// What a measure says: its numbers, then the smaller of both processes' shares.
std::string answer(const std::string& numbers, double mine, const Companion& companion) {
  if (!companion.first()) {
    companion.putText(std::to_string(mine));
    return {};
  }
  return numbers + ' ' + std::to_string(std::min(mine, std::stod(companion.getText())));
}

void needBothWays(const End& end) {
  if (end.outgoing() == 0 || end.incoming() == 0) die("there is no channel, or none back");
}

std::string latency(End& end, const Companion& companion, std::istream& words) {
  size_t bytes = 0, rounds = 0;
  if (!(words >> bytes >> rounds) || rounds == 0 || bytes > kAreaBytes) die("latency wants BYTES ROUNDS");
  needBothWays(end);
  const Latency found = pingPong(end, companion.first(), bytes, rounds);
  std::ostringstream out;
  out << found.median << ' ' << found.p99 << ' ' << found.least;
  return answer(out.str(), found.share, companion);
}

std::string streamed(End& end, const Companion& companion, std::istream& words) {
  const bool first = companion.first();
  Stream what;
  if (!(words >> what.bytes >> what.window >> what.channels >> what.count) || what.window < 1 ||
      what.window > kMostInFlight || what.channels < 1 || what.count < what.channels ||
      what.bytes > kAreaBytes || what.channels > (first ? end.outgoing() : end.incoming()))
    die("stream wants BYTES WINDOW CHANNELS COUNT, within what there is");
  needBothWays(end);
  what.count -= what.count % what.channels;
  const Streamed found = stream(end, first, what);
  std::ostringstream out;
  out << found.microseconds << ' ' << what.count;
  return answer(out.str(), found.share, companion);
}

std::string opened(PluginEnd& end, const Companion& companion, std::istream& words) {
  size_t count = 0;
  if (!(words >> count) || count < 1 || count > kMostChannels) die("open wants COUNT, up to 10000");
  const Opened times = openChannels(end, companion, count);
  if (!companion.first())
    companion.putText(std::to_string(times.connected) + ' ' + std::to_string(times.received));
  return answer(companion.first() ? companion.getText() : "", times.share, companion);
}

// The times of the second process, and of each the smaller share: without a pause between them, so that
// neither process sleeps.
std::string openedSingly(PluginEnd& end, const Companion& companion, std::istream& words) {
  size_t count = 0;
  if (!(words >> count) || count < 1 || count > kMostChannels) die("singles wants COUNT, up to 10000");
  std::vector<Opened> all;
  for (size_t i = 0; i < count; i++) all.push_back(openChannels(end, companion, 1));
  std::ostringstream mine;
  for (const Opened& one : all) mine << one.received << ' ' << one.share << ' ';
  if (!companion.first()) {
    companion.putText(mine.str());
    return {};
  }
  std::istringstream theirs(companion.getText());
  std::ostringstream out;
  double received = 0, share = 0;
  for (size_t i = 0; i < count && theirs >> received >> share; i++)
    out << received << ' ' << std::min(share, all[i].share) << ' ';
  return out.str();
}

std::string exercised(PluginEnd& end, const Companion& companion, std::istream& words) {
  size_t bytes = 0;
  if (!(words >> bytes) || bytes > kAreaBytes) die("exercise wants BYTES, up to 16 MiB");
  exerciseAll(end, companion, bytes);
  return "done";
}

std::string stateOfBoth(const Companion& companion) {
  if (companion.first()) return processState() + ' ' + companion.getText();
  companion.putText(processState());
  return {};
}

std::string newCommunicator(PluginEnd& end) {
  end.beginCommunicator();
  return "done";
}

std::string openBack(PluginEnd& end, const Companion& companion) {
  end.connect(companion.first() ? Shape{0, 1} : Shape{1, 0});
  return "done";
}

std::string executeForPlugin(const std::string& command, PluginEnd& end, const Companion& companion,
                             std::istream& words) {
  if (command == "open") return opened(end, companion, words);
  if (command == "singles") return openedSingly(end, companion, words);
  if (command == "communicator") return newCommunicator(end);
  if (command == "back") return openBack(end, companion);
  if (command == "exercise") return exercised(end, companion, words);
  if (command == "state") return stateOfBoth(companion);
  die("unknown command: " + command);
}

std::string execute(const std::string& line, End& end, const Companion& companion) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "hello") return end.describe();
  if (command == "latency") return latency(end, companion, words);
  if (command == "stream") return streamed(end, companion, words);
  if (auto* plugin = dynamic_cast<PluginEnd*>(&end))
    return executeForPlugin(command, *plugin, companion, words);
  die("unknown command: " + command);
}

// The first process reads commands, the second hears of each before it begins.
void serve(End& end, const Companion& companion) {
  for (std::string line;;) {
    watchdog(0);
    if (companion.first()) {
      if (!std::getline(std::cin, line)) line = "quit";
      companion.putText(line);
    } else {
      line = companion.getText();
    }
    watchdog(kCommandSeconds);
    if (line == "quit") return;
    const std::string answer = execute(line, end, companion);
    if (companion.first()) std::cout << answer << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--build") {
    std::puts(WEFT_BENCH_BUILD);
    return 0;
  }
  const size_t channels = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const bool plugin = argc == 3 && std::string(argv[1]).ends_with(".so");
  if (argc != 3 || channels > 64 || (channels == 0 && !plugin)) {
    std::fprintf(stderr,
                 "usage: bench-end "
                 "raw-write|raw-inject|raw-tagged|socket|copy-once|copy-twice|seam[:PROVIDER]|PLUGIN.so "
                 "CHANNELS\n");
    return 2;
  }
  watchdog(kStartSeconds);
  const Companion companion = Companion::start();
  const bool first = companion.first();
  {
    const auto end = openWay(argv[1], first ? Shape{channels, 1} : Shape{1, channels}, companion);
    serve(*end, companion);
    companion.putText("done");  // neither closes before the other is through
    (void)companion.getText();
  }
  return 0;
}
