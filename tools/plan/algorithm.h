// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/cluster.h"

// The time of one collective operation by each algorithm, in closed form. Pure functions; any thread.
namespace weft::plan {

enum class Collective { allReduce, allGather, reduceScatter, allToAll };

enum class Algorithm {
  best,          // the fastest of ring, doubleTree and hierarchical; collnet too where the cluster has it
  ring,          // one ring through all GPUs
  tree,          // one binary tree of nodes
  doubleTree,    // NCCL's "tree": two binary trees of nodes, half of the data on each
  hierarchical,  // scatter inside nodes, all-reduce between them, gather inside
  collnet,       // reduction by daemons or switches on the way
  levels         // the empirical law: each doubling of GPUs costs the same
};

struct AlgorithmFacts {
  Algorithm algorithm;
  const char* name;
  const char* formula;  // with the symbols that docs/scale.md explains
  const char* source;
};
const std::vector<AlgorithmFacts>& algorithms();
const char* nameOf(Algorithm algorithm);
std::optional<Algorithm> algorithmNamed(const std::string& name);

const char* nameOf(Collective collective);
std::optional<Collective> collectiveNamed(const std::string& name);

// Microseconds. The latency is what remains at no bytes.
struct Cost {
  double latencyUs = 0;
  double transferUs = 0;
  double us() const { return latencyUs + transferUs; }
};

struct Operation {
  Collective collective = Collective::allReduce;
  Algorithm algorithm = Algorithm::best;
  double gpus = 0;
  double bytes = 0;  // of a rank's larger buffer, as nccl-tests counts
};

// The cost on an idle network. A single GPU has none.
Cost costOf(const Cluster& cluster, const Operation& operation);
// The algorithm that `best` comes down to.
Algorithm chosen(const Cluster& cluster, const Operation& operation);
// Bus bandwidth in GB/s, by the convention of nccl-tests.
double busGBps(const Operation& operation, double us);

}  // namespace weft::plan
