// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/stats/reader.h"

// The counts of the ranks of jobs, added up by device and direction: few numbers, whose names stay the same
// while comms come and go. For metrics that somebody keeps for months.
namespace weft::counted {

// The most devices of a rank that are named. Where it has more, those that carried least are added up as
// "others", so that a rank never has more series than a place for metrics has room for.
inline constexpr size_t kMostDevices = 3;

struct Flow {
  std::string device;
  bool sends = false;
  uint64_t comms = 0;  // that live
  Comm sum;            // gauges of comms that live, counters of all
};

struct RankTotals {
  std::string job;    // empty: no launcher says it
  std::string rank;   // "3"; "weft-aggd"; empty: no launcher says it
  uint32_t user = 0;  // nobody adds to the counts of another user by calling its process the same
  bool up = false;
  uint64_t beat = 0;
  uint64_t begun = 0, now = 0;
  std::vector<Flow> flows;
};

// The label of a process: its rank, or the program that it is.
std::string rankOf(const Process& process);

// Processes of one user, job and rank are one: those that run, else those that are gone.
std::vector<RankTotals> totalsOf(const std::vector<Process>& processes);

}  // namespace weft::counted
