// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/perf/cluster_findings.h"
#include "tools/perf/options.h"
#include "tools/perf/pair_probe.h"

// `weft perf --check-cluster`: every pair of ranks, those side by side that share no host, so that a slow one
// cannot hide behind another's traffic. A rank or path that does not work is a result as any other. Used by
// one thread.
namespace weft::perf {

// Two ranks that could not be measured.
struct DeadPath {
  int from = 0;
  int to = 0;
  bool bothWays = true;
  std::string why;
};

// A rank that is not there: it never came, or stopped to answer.
struct LostRank {
  int rank = 0;
  std::string why;
};

// The findings of rank 0 at the end. A value that was not measured is no number (NaN) in the matrices.
struct ClusterResults {
  const Options* options = nullptr;
  std::string plugin;
  int devices = 0;                 // of rank 0
  std::vector<std::string> names;  // of the ranks' hosts
  std::vector<int> hosts;          // number of each rank's host
  std::vector<int> clocks;         // and of the clock it reads
  size_t rounds = 0;               // in which all pairs were measured
  double seconds = 0;              // that they took
  CostMatrix latency{0};           // microseconds, one way
  CostMatrix bandwidth{0};         // GB/s
  EndCosts costs;                  // the best of all ends, with --fit
  std::vector<DeadPath> dead;
  std::vector<LostRank> lost;
  std::vector<Finding> slowLatency;
  std::vector<Finding> slowBandwidth;

  size_t findings() const { return slowLatency.size() + slowBandwidth.size() + dead.size() + lost.size(); }
};

// The part of one rank. The result is the number of findings, on rank 0; 0 elsewhere.
Result<size_t> runClusterCheck(const Options& options, const netdriver::Place& place);

// Latency and bandwidth of the fabric from what is between hosts, if there are several, into options.fit.
Status writeFit(const ClusterResults& results);

// The matrices and who is slow, for people and as a document.
std::string clusterText(const ClusterResults& results);
std::string clusterDocument(const ClusterResults& results);

}  // namespace weft::perf
