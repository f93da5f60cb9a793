// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/perf/cluster_findings.h"
#include "tools/perf/options.h"

// `weft perf --check-cluster`: each pair of ranks in turn, while all others wait, so that a slow one cannot
// hide behind another's traffic. One thread.
namespace weft::perf {

// What rank 0 knows at the end.
struct ClusterResults {
  const Options* options = nullptr;
  std::string plugin;
  int devices = 0;                 // of rank 0
  std::vector<std::string> names;  // of the ranks' hosts
  std::vector<int> hosts;          // number of each rank's host
  CostMatrix latency{0};           // microseconds, one way
  CostMatrix bandwidth{0};         // GB/s
  std::vector<Finding> slowLatency;
  std::vector<Finding> slowBandwidth;

  size_t findings() const { return slowLatency.size() + slowBandwidth.size(); }
};

// One rank. The result is the number of findings, on rank 0; 0 elsewhere.
Result<size_t> runClusterCheck(const Options& options, const netdriver::Place& place);

// Latency and bandwidth of the fabric from what is between hosts, if there are several, into options.fit.
Status writeFit(const ClusterResults& results);

// The matrices and who is slow, for people and as a document.
std::string clusterText(const ClusterResults& results);
std::string clusterDocument(const ClusterResults& results);

}  // namespace weft::perf
