// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/perf.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "tools/netdriver/launcher.h"
#include "tools/netdriver/library.h"
#include "tools/netdriver/speaker.h"
#include "tools/output/output.h"
#include "tools/perf/cluster_check.h"
#include "tools/perf/place.h"
#include "tools/perf/progress.h"
#include "tools/perf/runner.h"
#include "tools/perf/watch.h"
#include "tools/replay/replay.h"

namespace weft::perf {

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kFound = 3;

int report(const Error& error) {
  fmt::print(stderr, "{}weft perf: {}\n", netdriver::speaker(), error.message());
  return error.code() == Code::invalidArgument ? kUsage : kFailed;
}

// This process's own command line after the program's name: the ranks are given the same.
std::vector<std::string> ownArguments() {
  std::vector<std::string> arguments;
  std::ifstream file("/proc/self/cmdline");
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  arguments.erase(arguments.begin());
  return arguments;
}

// As any program would end: a shell's loop goes on after one that only returns a status.
void endBy(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

int launch(const Options& options) {
  if (const std::string ignored = ignoredLauncher(); !ignored.empty())
    fmt::print(stderr, "weft perf: note: -n starts processes of its own here, {} is not read\n", ignored);
  netdriver::LaunchOptions launch;
  launch.processes = options.processes;
  launch.arguments = ownArguments();
  launch.command = launch.arguments.front();
  launch.arguments.erase(launch.arguments.begin());
  // Ranks write to us, so only we know whether there is a terminal; rank 0 shows its progress there.
  const Fd terminal(isatty(STDERR_FILENO) != 0 ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) : -1);
  if (terminal) {
    launch.rootArguments = {"--progress-fd", std::to_string(terminal.get())};
    launch.rootFds = {terminal.get()};
    launch.beforeLine = Progress::kWipe;
  }
  launch.timeout = Milliseconds(int64_t{options.timeoutSeconds} * 1000);
  launch.verdict = kFound;
  netdriver::Launcher launcher(std::move(launch));
  const Status result = launcher.run();
  if (result) return launcher.hasVerdict() ? kFound : 0;
  if (launcher.outputClosed()) endBy(SIGPIPE);
  if (terminal) fmt::print(stderr, "{}", Progress::kWipe);
  const int status = report(result.error());
  if (launcher.interruptedBy() != 0) endBy(launcher.interruptedBy());
  return status;
}

// A file that cannot be written is better known before the measurement.
Status checkFiles(const Options& options) {
  for (const std::string& path : {options.json, options.csv, options.plot, options.fit}) TRY(canWrite(path));
  return {};
}

// The exit code of rank 0 when something slow was found; elsewhere 0.
int checkCluster(const Options& options, const netdriver::Place& place) {
  const Watch watch(std::chrono::seconds(options.timeoutSeconds));
  const auto findings = runClusterCheck(options, place);
  if (!findings) return report(findings.error());
  return *findings == 0 ? 0 : kFound;
}

int replayRank(const Options& options, const netdriver::Place& place) {
  const Watch watch(std::chrono::seconds(options.timeoutSeconds));
  replay::Settings settings;
  settings.traces = options.replay;
  settings.plugin = options.plugin;
  settings.abi = options.abi;
  settings.json = options.json;
  settings.verbose = options.verbose;
  settings.timeoutSeconds = options.timeoutSeconds;
  settings.stallSeconds = options.stallSeconds;
  const Status done = replay::run(settings, place);
  return done ? 0 : report(done.error());
}

int runRank(const Options& options, const netdriver::Place& place) {
  Watch watch(std::chrono::seconds(options.timeoutSeconds));
  auto runner = Runner::create(options, place);
  if (!runner) return report(runner.error());
  watch.beforeEnd([&](const std::string& why) { (*runner)->abandon(why); });
  const auto wrong = (*runner)->run();
  watch.beforeEnd(nullptr);
  if (!wrong) return report(wrong.error());
  if (*wrong == 0) return 0;
  if (place.rank == 0) fmt::print(stderr, "{} elements are wrong\n", *wrong);
  return kFailed;
}

// Which rank we are is in the names of processes that peers log, and in front of our own lines; whoever
// started us writes it there himself.
void takePlace(const netdriver::Place& place, bool ours) {
  if (place.size == 0) return;
  ::setenv("RANK", std::to_string(place.rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(place.size).c_str(), 1);
  netdriver::setSpeaker(ours ? std::string() : fmt::format("rank {} on {}", place.rank, hostName()));
}

// The line that the user has to type on the other host. A token that the user gave is not shown again.
void showClientsLine(const Options& options, const netdriver::Place& place) {
  const auto given = netdriver::givenToken(options.token);
  const bool ours = given && given->empty();
  fmt::print("on the other host:  {}={} weft perf --client {}{}\n", netdriver::kTokenVariable,
             ours ? place.token : "THE_SAME", hostName(),
             options.port != 0 ? fmt::format(" --port {}", options.port) : std::string());
  std::fflush(stdout);
}

}  // namespace

int run(Options options) {
  if (options.withoutLauncher() && options.operation.empty() && options.replay.empty())
    options.operation = "sendrecv";
  if (options.baseline) {
    auto path = netdriver::baselinePluginPath();
    if (!path) return report(path.error());
    options.compare = path.take();
  }
  if (const auto config = readConfigFromEnvironment()) {
    LogLevel level = LogLevel::warn;
    if (parseLogLevel(config->logLevel.c_str(), &level) && level >= LogLevel::info) options.verbose = true;
  }
  if (const Status valid = validate(options); !valid) return report(valid.error());
  if (const auto types = parseTypes(options.type); !types) return report(types.error());
  if (const auto ops = parseRedOps(options.redop); !ops) return report(ops.error());
  // The ranks are ours then, whatever the environment says of us.
  const bool launches = options.processes > 0 && options.rendezvous.empty();
  const auto place = launches ? Result<netdriver::Place>(netdriver::Place()) : findPlace(options);
  if (!place) return report(place.error());
  if (place->size == 0 && options.replay.empty())
    return report(Error(Code::invalidArgument, "command line",
                        "use -n N to start N processes here, a launcher that says who is which rank (RANK "
                        "and WORLD_SIZE), or "
                        "--server on one host and --client HOST on another"));
  if (place->rank == 0)
    if (const Status writable = checkFiles(options); !writable) return report(writable.error());
  if (launches) return launch(options);
  if (options.server) showClientsLine(options, *place);
  takePlace(*place, !options.rendezvous.empty());
  if (!options.replay.empty()) return replayRank(options, *place);
  return options.checksCluster() ? checkCluster(options, *place) : runRank(options, *place);
}

}  // namespace weft::perf
