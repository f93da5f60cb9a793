// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/sim.h"

#include <algorithm>
#include <cmath>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/nearest.h"
#include "tools/output/output.h"
#include "tools/perf/operation.h"
#include "tools/perf/options.h"
#include "tools/plan/progress.h"
#include "tools/sim/report.h"

namespace weft::sim {

namespace {

constexpr int kMostRanks = 4096;
constexpr int kMostProcessors = 4096;
constexpr const char* kConnect = "connect";
const plan::Progress::Pace kPace{.command = "weft sim"};

Error refuse(const std::string& what) {
  return {Code::config, "simulating", what};
}

bool isSimulated(const perf::Operation& operation) {
  return !operation.offloaded() && !operation.inPairs() && operation.movement != perf::Movement::sendRecv;
}

// All that can be simulated, each once.
std::vector<std::string> operationNames() {
  std::vector<std::string> names;
  for (const perf::Operation& operation : perf::operations())
    if (isSimulated(operation) && std::find(names.begin(), names.end(), operation.name) == names.end())
      names.emplace_back(operation.name);
  names.emplace_back(kConnect);
  return names;
}

// Operations of weft perf whose schedule is known here, too.
Status findOperation(const Options& options, Setup* setup) {
  std::string name = options.operation == "all_to_all" ? "alltoall" : options.operation;
  const std::vector<std::string> known = operationNames();
  if (name.empty() && options.fit.empty())
    return refuse(fmt::format("name an operation: {}", fmt::join(known, ", ")));
  if (name.empty() || name == kConnect) return {};
  const auto isIt = [&](const perf::Operation& operation) { return operation.name == name; };
  if (std::none_of(perf::operations().begin(), perf::operations().end(), isIt)) {
    const std::string nearest = nearestWord(name, known);
    return refuse(fmt::format("{}: no such operation{}; there are {}", name,
                              nearest.empty() ? "" : "; did you mean " + nearest + "?",
                              fmt::join(known, ", ")));
  }
  auto found = perf::findOperation(name, options.algorithm);
  if (!found) return refuse(found.error().detail());
  if (!isSimulated(**found))
    return refuse(
        fmt::format("{} ({}) is not simulated; weft perf measures it", (*found)->name, (*found)->algorithm));
  setup->operation = *found;
  return {};
}

Status checkNumbers(const Options& options) {
  if (options.ranks < 2 || options.ranks > kMostRanks)
    return refuse(fmt::format("-n {}: 2 to {} ranks can be simulated", options.ranks, kMostRanks));
  if (options.minBytes > options.maxBytes)
    return refuse(fmt::format("-b {} is larger than -e {}", options.minBytes, options.maxBytes));
  if (options.stepBytes == 0 && !(options.factor >= 1.01 && std::isfinite(options.factor)))
    return refuse(fmt::format("-f {:g}: it must be a number from 1.01 on", options.factor));
  if (options.iterations < 1) return refuse(fmt::format("--iters {}: at least 1", options.iterations));
  if (options.warmup < 0) return refuse(fmt::format("-w {}: at least 0", options.warmup));
  if (options.processors < 0 || options.processors > kMostProcessors)
    return refuse(fmt::format("--processors {}: 1 to {}, or 0 for what the file says", options.processors,
                              kMostProcessors));
  if (options.peers < 0 || options.peers >= options.ranks)
    return refuse(fmt::format("--peers {}: a rank of {} has at most {} others", options.peers, options.ranks,
                              options.ranks - 1));
  if (options.peers > 0 && options.operation != kConnect) return refuse("--peers belongs to connect");
  if (options.fabric.empty()) {
    std::string all;
    for (const Fabric& fabric : knownFabrics()) all += (all.empty() ? "" : ", ") + fabric.name;
    return refuse("--fabric is missing: " + all + ", or a file that weft perf --fit wrote");
  }
  return {};
}

std::vector<uint64_t> sizesOf(const Options& options) {
  perf::Options sizes;
  sizes.minBytes = options.minBytes;
  sizes.maxBytes = options.maxBytes;
  sizes.factor = options.factor;
  sizes.stepBytes = options.stepBytes;
  return perf::messageSizes(sizes);
}

// The settings are those of this process, so that what they change can be seen.
Result<Setup> setupOf(const Options& options) {
  Setup setup;
  TRY(findOperation(options, &setup));
  TRY(checkNumbers(options));
  TRY(setup.fabric, readFabric(options.fabric));
  if (options.processors > 0) setup.fabric.host.processors = options.processors;
  if (options.processors > 0 && !setup.fabric.oneHost())
    return refuse(fmt::format(
        "--processors: {} says nothing of ranks that share a host, as a file of weft perf --fit does "
        "whose ranks were on one",
        options.fabric));
  auto config = readConfigFromEnvironment();
  if (!config) return refuse(config.error().detail());
  setup.config = config.take();
  setup.config.gdr = "off";
  setup.config.stats = false;
  setup.config.stateDir.clear();
  if (setup.config.eagerMaxBytes < 0) setup.config.eagerMaxBytes = setup.fabric.eagerBytes();
  setup.ranks = options.ranks;
  setup.peers = options.peers;
  setup.iterations = options.iterations;
  setup.warmup = options.warmup;
  setup.seed = options.seed;
  if (setup.operation) setup.sizes = sizesOf(options);
  return setup;
}

Watcher watcherOf(const Setup& setup, plan::Progress* progress) {
  Watcher watcher;
  watcher.stepped = [progress] { progress->computed(); };
  watcher.began = [progress, &setup](size_t size) {
    progress->begin(fmt::format("{} bytes among {} ranks", setup.sizes[size], setup.ranks));
  };
  return watcher;
}

Status fitted(const Options& options, const Setup& setup) {
  plan::Progress progress(STDERR_FILENO, 2, kPace);
  Watcher watcher;
  watcher.stepped = [&progress] { progress.computed(); };
  TRY(const OneWay way, measureOneWay(setup, watcher));
  return writeDocument(options.fit, fitText(setup, way));
}

Status simulated(const Options& options) {
  TRY(canWrite(options.json));
  TRY(canWrite(options.fit));
  TRY(const Setup setup, setupOf(options));
  if (!options.fit.empty()) return fitted(options, setup);
  if (options.json != "-") TRY(show(headerText(setup)));
  Result<Outcome> outcome = [&] {
    plan::Progress progress(STDERR_FILENO, static_cast<int>(setup.sizes.size()) + 1, kPace);
    progress.begin(fmt::format("connecting {} ranks", setup.ranks));
    return simulate(setup, watcherOf(setup, &progress));
  }();
  if (!outcome) return outcome.takeError();
  if (options.json != "-") TRY(show(rowsText(setup, *outcome) + connectionsText(setup, *outcome)));
  return options.json.empty() ? Status() : writeDocument(options.json, jsonOf(setup, *outcome));
}

}  // namespace

int run(const Options& options) {
  const Status done = simulated(options);
  if (done) return 0;
  const Error& error = done.error();
  fmt::print(stderr, "weft sim: {}\n",
             error.errnum() == 0 && error.code() == Code::config ? error.detail() : error.message());
  return exitCodeOf(error);
}

}  // namespace weft::sim
