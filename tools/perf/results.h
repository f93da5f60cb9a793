// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "tools/json/json.h"
#include "tools/netdriver/library.h"
#include "tools/perf/histogram.h"
#include "tools/perf/operation.h"
#include "tools/perf/options.h"

// The findings of a run, and the documents that are made of it. Times in microseconds; GB is 10^9 bytes.
// Plain values on rank 0; one thread.
namespace weft::perf {

// The conditions that the numbers depend on.
struct Conditions {
  std::string plugin;
  std::string table;   // its name and version
  std::string fabric;  // as weft names it; empty: another plugin's
  std::string device;
  int deviceNumber = 0;
  int speedMbps = 0;
  std::string date;                // when it began: "2026-11-25 09:30 UTC"
  std::string host;                // of rank 0
  std::vector<std::string> names;  // of all hosts, in the order of their ranks
  std::string processor;
  int processors = 0;
  int hosts = 1;      // of all ranks
  int ranksHere = 1;  // on this one
  std::string build;
  std::vector<std::string> settings;  // NAME=VALUE of the environment that weft reads
  std::string other;                  // the plugin of --compare
  std::string otherFabric;
  std::vector<std::string> warnings;  // why the numbers should not be compared with others
};

// The same for all ranks of a machine, whatever containers they are in, and no others.
using MachineId = std::array<char, 40>;
MachineId machineId();

std::string dateOf(std::time_t time);  // "2026-11-25", UTC
std::string momentOf(std::time_t time);

// Asks the machine, the plugin and the way this program was built.
Conditions readConditions(netdriver::Library& library, const netdriver::Properties& device);

struct Sample {
  double microseconds = 0;  // mean of all iterations on all ranks
  int iterations = 0;
  uint64_t wrong = 0;
  uint64_t messages = 0;       // sent and received by all ranks in the timed iterations
  double cpuMicroseconds = 0;  // of all ranks' processes in the same time
  Histogram latency;           // of each iteration on each rank

  // Further iterations of the same case, measured after these.
  void append(const Sample& more);
  double cpuPerMessage() const { return messages > 0 ? cpuMicroseconds / static_cast<double>(messages) : 0; }
};

// How often the other plugin's time was which multiple of ours, over the rounds of --compare.
struct Ratio {
  double median = 1;
  double low = 1;
  double high = 1;
  bool differs() const { return low > 1 || high < 1; }
};

// The same over all sizes of a decade: of 10 to 99 bytes, for example.
struct DecadeRatio {
  uint64_t smallest = 0;  // that was measured
  uint64_t largest = 0;
  Ratio ratio;
};

// A half of a row.
struct RowHalf {
  Sample sample;
  std::optional<Sample> other;  // with --compare
  Ratio ratio;

  uint64_t wrong() const { return sample.wrong + (other ? other->wrong : 0); }
};

struct Row {
  uint64_t bytes = 0;
  uint64_t count = 0;
  const char* type = "";
  const char* redop = "";
  int root = -1;  // -1: has none
  std::optional<RowHalf> outOfPlace;
  std::optional<RowHalf> inPlace;
};

struct Results {
  const Options* options = nullptr;
  const Operation* operation = nullptr;
  int size = 1;
  Conditions conditions;
  std::vector<Row> rows;
  std::optional<Ratio> ratio;  // of all rows together, with --compare
  std::vector<DecadeRatio> decades;
  std::string endedBy;  // why rows are missing; empty: none is

  // All communicators of a rank work at the same time, so their bandwidths add up.
  double algorithmGBps(const Row& row, const Sample& sample) const {
    if (sample.microseconds <= 0) return 0;
    return static_cast<double>(row.bytes) * options->communicators / sample.microseconds / 1e3;
  }
  double busGBps(const Row& row, const Sample& sample) const {
    return algorithmGBps(row, sample) * operation->busFactor(size);
  }
  uint64_t wrong() const;
  double averageBusGBps() const;
};

// The halves of a row that were measured, with their names in documents: "out_of_place" and "in_place".
std::vector<std::pair<const char*, const RowHalf*>> halvesOf(const Row& row);

Json jsonRows(const Results& results);  // an array
std::string jsonDocument(const Results& results);
std::string csvDocument(const Results& results);

}  // namespace weft::perf
