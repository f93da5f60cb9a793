// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/runner.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <unistd.h>

#include <fmt/format.h>

#include "src/base/process.h"
#include "tools/netdriver/log_sink.h"
#include "tools/perf/agreement.h"

namespace weft::perf {

namespace {

// Set aside for iterations that follow one another without a pause: each of them needs data of its own.
constexpr uint64_t kBatchBytes = uint64_t{8} << 20;

// A rank of which nothing was heard for so long is stopped, or cut off.
constexpr Milliseconds kRunSilence{30'000};

// Where progress is shown: the launcher's terminal, or our own.
int terminal(const Options& options) {
  if (options.progressFd >= 0) return options.progressFd;
  return isatty(STDERR_FILENO) != 0 ? STDERR_FILENO : -1;
}

bool isSameFile(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

int countCases(const Options& options, const Operation& operation) {
  const size_t types = parseTypes(options.type)->size();
  const size_t ops = operation.reduces ? parseRedOps(options.redop)->size() : 1;
  return static_cast<int>(messageSizes(options).size() * types * ops) * (operation.inPlace ? 2 : 1);
}

}  // namespace

Result<std::unique_ptr<Runner>> Runner::create(const Options& options, const netdriver::Place& place) {
  auto runner = std::make_unique<Runner>(Key{});
  runner->options_ = options;
  netdriver::LogSink::instance().setVerbose(options.verbose);
  const netdriver::Patience patience{Milliseconds(int64_t{options.timeoutSeconds} * 1000), kRunSilence, {}};
  TRY(runner->bootstrap_, netdriver::Bootstrap::create(place, patience));
  if (Status ready = runner->prepare(place); !ready) {
    runner->bootstrap_->abandon(ready.error().message());
    return ready.takeError();
  }
  return runner;
}

Status Runner::prepare(const netdriver::Place& place) {
  if (options_.withoutLauncher()) TRY(followClient(&options_, *bootstrap_));
  TRY(operation_, findOperation(options_.operation, options_.algorithm));
  TRY(agree(options_, *bootstrap_));
  TRY(checkRanks());
  TRY(allocate());
  crew_.emplace(options_.threadsInUse());
  TRY(openTeams());
  measurement_.emplace(options_, *bootstrap_, *crew_);
  if (place.rank != 0) return {};
  report_.emplace(options_, *operation_, place.size);
  progress_.emplace(terminal(options_), countCases(options_, *operation_));
  measurement_->onIteration(
      [progress = &*progress_](Progress::Clock::time_point now) { progress->iteration(now); });
  return {};
}

Status Runner::checkRanks() const {
  if (operation_->inPairs() && bootstrap_->size() % 2 != 0)
    return Error(Code::invalidArgument, "command line",
                 fmt::format("{} is between pairs of ranks; {} ranks leave one over", operation_->name,
                             bootstrap_->size()));
  if (options_.root >= 0 && options_.root < bootstrap_->size()) return {};
  return Error(Code::invalidArgument, "command line",
               fmt::format("-r {}: there are ranks 0 to {}", options_.root, bootstrap_->size() - 1));
}

Status Runner::allocate() {
  for (int i = 0; i < options_.communicators; ++i) {
    TRY(Workload workload, Workload::create(std::max(options_.maxBytes, kBatchBytes)));
    workloads_.push_back(std::move(workload));
  }
  return {};
}

TeamSetup Runner::teamSetup(const std::string& plugin) {
  TeamSetup setup;
  setup.plugin = plugin;
  setup.options = &options_;
  setup.operation = operation_;
  setup.bootstrap = bootstrap_.get();
  setup.crew = &*crew_;
  setup.workloads = workloads_;
  return setup;
}

// The other plugin first: while its environment is different, no plugin has a thread that could read it.
Status Runner::openTeams() {
  if (!options_.compare.empty()) {
    const EnvironmentScope scope(options_.compareEnvironment);
    TRY(other_, Team::open(teamSetup(options_.compare)));
    ratio_.emplace(options_.rounds);
  }
  TRY(team_, Team::open(teamSetup(options_.plugin)));
  if (other_ && isSameFile(other_->library().path(), team_->library().path()))
    return Error(
        Code::invalidArgument, "command line",
        "--compare names the same file as --plugin, and a process loads a file only once: make a copy");
  if (other_) TRY(other_->connect());
  return team_->connect();
}

Case Runner::makeCase(uint64_t bytes, const ElementType& type, RedOp op) const {
  Case c;
  c.operation = operation_;
  c.type = &type;
  c.op = op;
  c.root = options_.root;
  c.rank = bootstrap_->rank();
  c.size = bootstrap_->size();
  c.setBytes(bytes);
  return c;
}

Result<uint64_t> Runner::run() {
  auto wrong = runAll();
  if (!wrong) {
    bootstrap_->abandon(wrong.error().message());
    abandon(wrong.error().message());
  }
  return wrong;
}

void Runner::abandon(const std::string& why) {
  if (report_) report_->abandon(why);
}

Status Runner::beginReport() {
  struct Home {
    MachineId machine;
    std::array<char, 64> host{};
  };
  Home home{machineId(), {}};
  const std::string name = hostName();
  std::copy_n(name.begin(), std::min(name.size(), home.host.size() - 1), home.host.begin());
  TRY(const auto homes, bootstrap_->gatherValuesToRoot(home));
  if (!report_) return {};
  std::vector<MachineId> machines;
  for (const Home& one : homes) machines.push_back(one.machine);
  Conditions conditions = readConditions(team_->library(), team_->device());
  if (operation_->oneSided())
    conditions.table += fmt::format(", one-sided v{}", team_->library().oneSided()->version());
  conditions.hosts = static_cast<int>(std::set(machines.begin(), machines.end()).size());
  conditions.ranksHere = static_cast<int>(std::count(machines.begin(), machines.end(), machines.front()));
  for (size_t i = 0; i < homes.size(); ++i)
    if (std::find(machines.begin(), machines.begin() + static_cast<std::ptrdiff_t>(i), machines[i]) ==
        machines.begin() + static_cast<std::ptrdiff_t>(i))
      conditions.names.emplace_back(homes[i].host.data());
  conditions.fabric = team_->fabric();
  conditions.deviceNumber = team_->number();
  if (other_) {
    conditions.other = other_->library().path();
    conditions.otherFabric = other_->fabric();
  }
  report_->begin(std::move(conditions));
  return {};
}

Result<uint64_t> Runner::runAll() {
  uint64_t wrong = 0;
  TRY(const auto types, parseTypes(options_.type));
  TRY(auto ops, parseRedOps(options_.redop));
  if (!operation_->reduces) ops = {RedOp::sum};
  TRY(beginReport());
  for (const uint64_t bytes : messageSizes(options_)) {
    for (const ElementType* type : types) {
      for (const RedOp op : ops) {
        Row row;
        TRY(runCase(makeCase(bytes, *type, op), &row));
        for (const auto& [place, half] : halvesOf(row)) wrong += half->wrong();
        if (progress_) progress_->wipe();
        if (report_) report_->endRow(std::move(row));
      }
    }
  }
  if (report_) TRY(report_->end(ratio_ ? &*ratio_ : nullptr));
  return wrong;
}

Status Runner::runCase(Case c, Row* row) {
  row->bytes = c.bytes();
  row->count = c.count();
  row->type = c.type->name;
  row->redop = operation_->reduces ? redOpName(c.op) : "none";
  row->root = operation_->rooted ? c.root : -1;
  const bool several = options_.check != 0 && (options_.iterations > 1 || options_.duration > 0);
  const uint64_t most = options_.duration > 0 ? UINT64_MAX : static_cast<uint64_t>(options_.iterations);
  const uint64_t iterations = several ? most : 1;
  for (Workload& workload : workloads_)
    workload.prepare(c.bytes() * std::min<uint64_t>(iterations, workload.slots(c)));
  TRY(row->outOfPlace, measure(c));
  c.inPlace = true;
  if (operation_->inPlace) {
    TRY(row->inPlace, measure(c));
  }
  return {};
}

Result<RowHalf> Runner::measure(const Case& c) {
  RowHalf half;
  TRY(measurement_->warmUp(*team_, c, options_.warmup));
  if (other_) TRY(measurement_->warmUp(*other_, c, options_.warmup));
  int iterations = options_.iterations;
  if (options_.duration > 0) {
    TRY(iterations, measurement_->iterationsFor(*team_, c, options_.duration));
  }
  watch(c, iterations);
  TRY(other_ ? measureBoth(c, iterations, &half) : measureOne(c, iterations, &half));
  return half;
}

// The number for a duration was guessed from the first few: where they were slower than the rest, what is
// missing follows.
Status Runner::measureOne(const Case& c, int iterations, RowHalf* half) {
  TRY(half->sample, measurement_->measure(*team_, c, iterations));
  for (int more = missing(half->sample, c); more > 0; more = missing(half->sample, c)) {
    if (progress_) progress_->extend(more);
    TRY(const Sample sample, measurement_->measure(*team_, c, more));
    half->sample.append(sample);
  }
  return {};
}

// Until nine tenths of the duration are reached; the same number on every rank.
int Runner::missing(const Sample& sample, const Case& c) const {
  const double each = sample.microseconds * c.operation->legs;
  const double taken = each * sample.iterations;
  if (taken >= 0.9e6 * options_.duration || sample.iterations >= Measurement::kMostIterations) return 0;
  const double left = std::ceil((1e6 * options_.duration - taken) / std::max(each, 1e-3));
  return static_cast<int>(std::min<double>(left, Measurement::kMostIterations - sample.iterations));
}

// The first to begin changes with every round, so that a machine which gets faster or slower favours nobody.
Status Runner::measureBoth(const Case& c, int iterations, RowHalf* half) {
  half->other.emplace();
  std::vector<double> ratios;
  for (int round = 1; round <= options_.rounds; ++round) {
    Sample samples[2];
    for (const int turn : {round % 2, 1 - round % 2}) {
      Team& team = turn == 0 ? *team_ : *other_;
      TRY(measurement_->warmUp(team, c, 1));
      TRY(samples[turn], measurement_->measure(team, c, iterations));
    }
    addRound(&half->sample, samples[0], round);
    addRound(&*half->other, samples[1], round);
    ratios.push_back(samples[1].microseconds / samples[0].microseconds);
  }
  ratio_->add(c.bytes(), ratios);
  half->ratio = ratioOf(std::move(ratios));
  return {};
}

void Runner::watch(const Case& c, int iterations) {
  if (!progress_) return;
  const int turns = other_ ? 2 * options_.rounds : 1;
  progress_->begin(
      fmt::format("{} bytes of {} {}", c.bytes(), c.type->name, c.inPlace ? "in place" : "out of place"),
      iterations * turns);
}

}  // namespace weft::perf
