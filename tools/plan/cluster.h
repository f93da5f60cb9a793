// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "weft/result.h"

// The cluster of a plan, in as few numbers as the equations need. Times in microseconds, rates in GB/s (1e9
// bytes) and one direction. Plain values; any thread.
namespace weft::plan {

// NCCL has a second protocol (LL128) for operations of which a rank's part is small: less time a step, and a
// share of the rate, as every line carries a flag. belowBytes 0: there is none.
struct LowLatency {
  double belowBytes = 0;  // of a rank's part
  double alphaUs = 0;
  double insideUs = 0;  // of a step inside a node
  double share = 1;
};

// The network between nodes.
struct Network {
  std::string source;
  double alphaUs = 0;             // of a step from node to node: post, wire, proxies and completion
  double pluginUs = 0;            // the network plugin's and the wire's part of a step, with both protocols
  double gapUs = 0;               // between two messages of a rail: what small messages lose (E5)
  double railGBps = 0;            // of a rail with large messages
  double rails = 1;               // of a node
  double railsLost = 0;           // of each node
  double chunkBytes = 512 << 10;  // most that one message carries
  double eagerBytes = 0;          // a message up to this leaves without waiting for its receiver (E11)
  double clearUs = 0;             // that a larger one waits for
  LowLatency low;

  double nodeGBps() const { return (rails - railsLost) * railGBps; }
};

// The links inside a node, by their bus bandwidth.
struct Inside {
  double alphaUs = 0;
  double GBps = 0;
  double switchGBps = 0;  // where the node's switch reduces (NVLS); 0: it does not
};

// Reduction on the way (E4). No fan-in: the cluster has none.
struct Collnet {
  double fanIn = 0;
  double hopUs = 0;   // of a daemon or switch
  double upGBps = 0;  // of a node towards it; 0: what the network has
};

// The loss of a rail as it happens (E12).
struct Outage {
  double detectUs = 0;
  double outstandingBytes = 0;
  double repairSeconds = 0;
};

struct Cluster {
  std::string name;
  std::string source;
  double nodes = 0;  // 0: as many as are asked for
  double gpusPerNode = 1;
  Network network;
  Inside inside;
  Collnet collnet;
  Outage outage;
  double kappa = 0;  // by which share the backward pass is slower while messages move
  double sigma = 0;  // deviation of one rank's computing time, as a share of it

  double nodesOf(double gpus) const;  // that so many GPUs fill
  Cluster withLowLatency() const;     // with the numbers of that protocol in place of the others
};

// Errors name the file and the field in one line.
Result<Cluster> parseCluster(const std::string& file, const std::string& text);
// A file of JSON, a table of `weft perf --fit` or `weft sim --fit`, or the name of a machine. A machine of
// which an example is a cluster (p5.48xlarge) is that example; others are as the tuner knows them.
Result<Cluster> readCluster(const std::string& name);

}  // namespace weft::plan
