// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/stats/layout.h"
#include "weft/result.h"

// The run of a job, as far as what it left says: profiles, traces or counters. Plain values; any thread.
namespace weft::report {

constexpr double kSecondsOfNanosecond = 1e-9;

enum class Source { profile, trace, counters };
const char* nameOf(Source source);

// Kinds of requests that NCCL makes of a network plugin; `offload` is a whole operation that the network
// does.
enum class Kind { send, receive, flush, offload };
constexpr size_t kKinds = 4;
const char* nameOf(Kind kind);

// Messages of one size class of src/stats/layout.h.
struct SizeSum {
  double messages = 0;
  double bytes = 0;
  double timed = 0;    // of the messages: those whose time is known
  double seconds = 0;  // of these, from post to completion, added up
  SizeSum& operator+=(const SizeSum& other);
  // Of all messages, where those that were timed are a sample.
  double allSeconds() const { return timed > 0 ? seconds * messages / timed : 0; }
};
using Sizes = std::array<SizeSum, stats::kSizeClasses>;

// Times from post to completion, by buckets of which each is at most a quarter wide.
class Latency {
 public:
  void add(uint64_t nanoseconds) { addUpTo(stats::bucketBegin(stats::bucketOf(nanoseconds) + 1), 1); }
  void addUpTo(uint64_t nanoseconds, uint64_t times) { counts_[nanoseconds] += times; }
  Latency& operator+=(const Latency& other);
  uint64_t count() const;
  double quantile(double share) const;  // seconds; 0: nothing was timed

 private:
  std::map<uint64_t, uint64_t> counts_;  // that took up to so many nanoseconds
};

// The traffic of one process with one peer, by one device and in one direction.
struct Flow {
  Kind kind = Kind::send;
  std::string operation;  // of NCCL, of which the messages are a part: "allreduce"; empty: not known
  std::string device;
  std::string peer;  // its name; that of another process of the run where it is one
  double comms = 0;
  double busySeconds = 0;  // with something in flight; 0: not known
  double waitSeconds = 0;  // in which a request was to begin and might not
  double waits = 0;
  Sizes sizes{};
  Latency latency;
  stats::OneSidedSum oneSided;  // their messages are among the sizes
  SizeSum total() const;
  std::string label() const;  // operation and kind
};

// Registrations of memory, of one device.
struct MemoryUse {
  std::string device;
  double hits = 0, misses = 0, evictions = 0;
  double bytes = 0;    // registered in all
  double seconds = 0;  // spent registering
};

// Writes over one rail of a device that has several.
struct RailUse {
  std::string device, rail;
  double writes = 0, bytes = 0;
  double bytesAgain = 0;  // of these, written again after another rail had lost them
};

struct ThreadUse {
  std::string name;
  double seconds = 0;  // of processor time
};

struct Process {
  std::string name;  // "rank 3 on node7 pid 4711"
  double begun = 0;  // seconds since 1970; 0: not known
  double seconds = 0;
  double processorSeconds = 0;  // of the whole process; 0: not known
  std::vector<Flow> flows;
  std::vector<MemoryUse> memory;
  std::vector<RailUse> rails;  // empty too where the profile is of a weft that did not tell them
  std::vector<ThreadUse> threads;
};

// The bytes sent in each slice of time, a second.
struct Rates {
  double sliceSeconds = 0;
  std::vector<double> all;                     // of all processes; empty: the source has no times
  std::vector<std::vector<double>> processes;  // in the order of the run's
};

struct Run {
  std::string name;  // of the folder
  Source source = Source::counters;
  std::vector<Process> processes;
  Rates rates;
  std::vector<std::string> notes;  // sentences on what is missing
  double seconds() const;          // of the longest process
};

// A folder of profiles, of traces or of counters, or one such file. An error names what was looked for.
Result<Run> readRun(const std::string& path);
Result<Run> readProfileRun(const std::string& path);
Result<Run> readTraceRun(const std::string& path);
Result<Run> readCountersRun(const std::string& path);

}  // namespace weft::report
