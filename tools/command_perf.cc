// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/command_perf.h"

#include <cstdlib>
#include <string>

#include "tools/netdriver/net.h"
#include "tools/perf/operation.h"

// The options of weft perf, by topic.
namespace weft {

namespace {

// "8", "4K", "1.5M", "2GiB" in bytes; empty when it is none of these.
std::string parseSize(std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit = end;
  for (const char* suffix : {"iB", "B"})
    if (unit.ends_with(suffix)) unit.resize(unit.size() - std::string(suffix).size());
  double scale = 1;
  if (unit == "K" || unit == "k") scale = 1 << 10;
  if (unit == "M" || unit == "m") scale = 1 << 20;
  if (unit == "G" || unit == "g") scale = 1 << 30;
  constexpr double kMost = double{1ULL << 62};
  const bool possible = number >= 0 && number * scale <= kMost;  // what is no number is not
  if (end == text.c_str() || !possible || (scale == 1 && !unit.empty()))
    return "'" + text + "' is not a size: give a number, with K, M or G if you like";
  text = std::to_string(static_cast<uint64_t>(number * scale));
  return {};
}

constexpr const char* kPerfExamples = R"(Examples:
    weft perf all_reduce -n 4 -b 8 -e 64M -f 2         four local processes, every element verified
    srun -N 2 --ntasks-per-node 8 weft perf all_reduce -b 1M -e 1G
    srun --ntasks-per-node 1 weft perf --check-cluster      which host is slow or cannot be reached
    weft perf --server, and on another host  weft perf --client HOST pingpong -b 8 -e 8
    weft perf sendrecv -n 2 --duration 10 -b 1M -e 1M  ten seconds
    weft perf all_reduce -n 2 --compare other.so       two plugins in turn)";

void declareNcclTestsOptions(CLI::App& command, perf::Options& options) {
  command.add_option("-b,--minbytes", options.minBytes, "smallest message")
      ->transform(sizeInBytes())
      ->capture_default_str();
  command.add_option("-e,--maxbytes", options.maxBytes, "largest message")
      ->transform(sizeInBytes())
      ->capture_default_str();
  command.add_option("-f,--stepfactor", options.factor, "sizes grow by this factor")->capture_default_str();
  command.add_option("-i,--stepbytes", options.stepBytes, "sizes grow by this many bytes instead")
      ->transform(sizeInBytes());
  command.add_option("--iters", options.iterations, "iterations timed at each size")
      ->check(CLI::Range(1, 1000000000))
      ->capture_default_str();
  command.add_option("--duration", options.duration, "seconds timed at each size, instead of --iters")
      ->check(CLI::Range(0.001, 1000000.0));
  command.add_option("-w,--warmup_iters", options.warmup, "iterations before that")
      ->check(CLI::Range(0, 1000000000))
      ->capture_default_str();
  command
      .add_option("-c,--check", options.check, "1: verify every element of every iteration, 0: only measure")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  command
      .add_option("-d,--datatype", options.type,
                  "float half bfloat16 double int8 uint8 int32 uint32 int64 uint64, or all")
      ->capture_default_str();
  command.add_option("-o,--op", options.redop, "sum prod max min, or all")->capture_default_str();
  command.add_option("-r,--root", options.root, "rank that broadcasts")->capture_default_str();
}

void declareClusterOptions(CLI::App& command, perf::Options& options) {
  command.add_flag("--check-cluster", options.checkCluster,
                   "instead of an operation: every pair of ranks, and who is slower than the others; under a "
                   "launcher, for -n "
                   "starts ranks on this host only");
  command.add_option("--slow", options.slowLimit, "slow is what takes so many times as long as is typical")
      ->check(CLI::Range(1.1, 1000.0))
      ->capture_default_str();
  command
      .add_option("--cluster-bytes", options.clusterBytes, "sent from each rank to each for its bandwidth")
      ->transform(sizeInBytes())
      ->capture_default_str();
  command.add_option("--fit", options.fit,
                     "measure that, and write latency and bandwidth to this file for WEFT_TUNER_TABLE");
}

void declareCompareOptions(CLI::App& command, perf::Options& options) {
  CLI::Option* compare =
      command.add_option("--compare", options.compare, "another plugin, measured in turn with the first");
  command
      .add_flag("--baseline", options.baseline,
                "compare with plain TCP sockets and nothing else, the plugin of the benches")
      ->excludes(compare);
  command
      .add_option("--compare-env", options.compareEnvironment,
                  "NAME=VALUE in the environment of that plugin only; can be repeated")
      ->allow_extra_args(false);
  command.add_option("--rounds", options.rounds, "how often both take their turn at each size")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
}

void declareResultOptions(CLI::App& command, perf::Options& options) {
  command.add_flag("--latency", options.latency, "show percentiles and processor time for a message");
  command.add_flag("--histogram", options.histogram, "show how the latencies are spread, too");
  command.add_option("--json", options.json,
                     "write results to this file; - here and below is the standard output");
  command.add_option("--csv", options.csv, "the same as comma-separated values");
  command.add_option("--plot", options.plot, "draw bus bandwidth and latency over size into this SVG file");
}

void declareRunOptions(CLI::App& command, perf::Options& options) {
  command.add_option("-n,--processes", options.processes, "start that many processes on this machine")
      ->check(CLI::Range(1, 4096));
  command.add_option("--plugin", options.plugin, "network plugin to load (default: weft's own)");
  command.add_option("--abi", options.abi, "version of its table (default: the newest)")
      ->check(CLI::Range(6, 12));
  CLI::Option* device =
      command.add_option("--device", options.device, "network device")->capture_default_str();
  command.add_flag("--merge", options.merge, "merge up to 4 network devices into one, as NCCL does")
      ->excludes(device);
  command.add_option("--channels", options.channels, "rings side by side")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--comms", options.communicators, "communicators a rank, all working at the same time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      .add_option("--threads", options.threads,
                  "threads a rank that share its communicators (default: one for each)")
      ->check(CLI::Range(1, 256));
  command.add_option("--buffsize", options.bufferBytes, "buffer of one connection, 8 steps (NCCL_BUFFSIZE)")
      ->transform(sizeInBytes())
      ->capture_default_str();
  command
      .add_option("--p2p-chunk", options.p2pChunkBytes, "message size of sendrecv (NCCL_P2P_NET_CHUNKSIZE)")
      ->transform(sizeInBytes())
      ->capture_default_str();
  command
      .add_option("--group", options.group,
                  "senders behind each rank of sendrecv: they share a comm and are received in groups")
      ->check(CLI::Range(1, netdriver::kMaxGroup))
      ->capture_default_str();
  command.add_flag("--server", options.server,
                   "wait for one --client of another host, without a launcher; it says what is measured");
  command.add_option("--client", options.client,
                     "measure between this process and the --server of that host");
  command.add_option("--token", options.token,
                     "who has it may take a rank: @FILE, whose first line it is (default: WEFT_TOKEN)");
  command.add_option("--port", options.port, "of --server and --client (default: 29571)")
      ->check(CLI::Range(1, 65535));
  command.add_flag("-v,--verbose", options.verbose, "show what the plugin logs, as WEFT_DEBUG=INFO does");
  command.add_option("--timeout", options.timeoutSeconds, "end the run after so many seconds")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command
      .add_option("--stall-timeout", options.stallSeconds, "a collective may stand still for so many seconds")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
}

// "all_reduce, all_gather, ...", each once.
std::string operationNames() {
  std::string names;
  std::string last;
  for (const perf::Operation& operation : perf::operations()) {
    if (last == operation.name) continue;
    names += (names.empty() ? "" : ", ") + std::string(operation.name);
    last = operation.name;
  }
  return names;
}

// Options that the launcher passes; not for users.
void declarePlaceOptions(CLI::App& command, perf::Options& options) {
  command.add_option("--rank", options.rank)->group("");
  command.add_option("--size", options.size)->group("");
  command.add_option("--rendezvous", options.rendezvous)->group("");
  command.add_option("--listen-fd", options.listenFd)->group("");
  command.add_option("--progress-fd", options.progressFd)->group("");
}

}  // namespace

const CLI::Validator& sizeInBytes() {
  static const CLI::Validator size(parseSize, "SIZE");
  return size;
}

void declarePerf(CLI::App& command, perf::Options& options) {
  command.add_option("operation", options.operation, operationNames());
  command.add_option(
      "--replay", options.replay,
      "instead of an operation: drive the plugin by these traces of a job's ranks, or folders");
  command.add_option(
      "--algo", options.algorithm,
      "ring; tree, for all_reduce; collnet, for all_reduce, all_gather and reduce_scatter (default: ring)");
  declareNcclTestsOptions(command, options);
  declareRunOptions(command, options);
  declareResultOptions(command, options);
  declareCompareOptions(command, options);
  declareClusterOptions(command, options);
  declarePlaceOptions(command, options);
  command.footer(kPerfExamples);
}

}  // namespace weft
