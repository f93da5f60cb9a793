// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/algorithm.h"

#include <algorithm>
#include <cmath>

namespace weft::plan {

namespace {

constexpr double kBytesPerUs = 1e3;  // of 1 GB/s

// A step's time without its bytes: a message that is too large to leave at once waits for its receiver (E11).
double stepUs(const Network& network, double messageBytes) {
  return network.alphaUs + (messageBytes > network.eagerBytes ? network.clearUs : 0);
}

// A rail moves s bytes in the time of s + gap x rate (E5).
double railShare(const Network& network, double messageBytes) {
  const double lost = network.gapUs * network.railGBps * kBytesPerUs;
  return messageBytes > 0 ? messageBytes / (messageBytes + lost) : 1;
}

// A step's bytes are cut over the rails, and then into chunks.
double messageOf(const Network& network, double stepBytes) {
  return std::min(network.chunkBytes, stepBytes / std::max(1.0, network.rails - network.railsLost));
}

double levelsOf(double count) {
  return count > 1 ? std::ceil(std::log2(count) - 1e-9) : 0;
}

double usOf(double bytes, double rate) {
  return bytes / (rate * kBytesPerUs);
}

// A piece goes round once, in gpus - 1 steps of which as many as there are nodes cross the network.
Cost ringRound(const Cluster& cluster, double gpus, double bytes) {
  const double nodes = cluster.nodesOf(gpus);
  const double steps = gpus - 1;
  const double moved = bytes * steps / gpus;
  if (nodes <= 1) return {steps * cluster.inside.alphaUs, usOf(moved, cluster.inside.GBps)};
  const double message = messageOf(cluster.network, bytes / gpus * std::max(1.0, gpus / nodes));
  const double crossing = std::min(steps, nodes);
  const double latency =
      crossing * stepUs(cluster.network, message) + (steps - crossing) * cluster.inside.alphaUs;
  double rate = cluster.network.nodeGBps() * railShare(cluster.network, message);
  if (gpus > nodes) rate = std::min(rate, cluster.inside.GBps);
  return {latency, usOf(moved, rate)};
}

Cost ringCost(const Cluster& cluster, const Operation& operation) {
  const Cost round = ringRound(cluster, operation.gpus, operation.bytes);
  const double rounds = operation.collective == Collective::allReduce ? 2 : 1;
  return {rounds * round.latencyUs, rounds * round.transferUs};
}

// Between nodes; `passes` is how often a node's card carries the bytes in its busier direction.
Cost treeOfNodes(const Cluster& cluster, double nodes, double bytes, double passes) {
  const Network& network = cluster.network;
  const double levels = levelsOf(nodes);
  const double message = messageOf(network, bytes);
  const double rate = network.nodeGBps() * railShare(network, message);
  // A chunk is received as a whole before it goes on, so each level but the first adds the time of one.
  const double fill = std::max(0.0, levels - 1) * usOf(message, network.railGBps);
  return {2 * levels * stepUs(network, message), usOf(passes * bytes, rate) + 2 * fill};
}

// Each of two trees carries half of the bytes over nodes - 1 edges in both directions, and a node is inside
// of one and a leaf of the other.
double doublePasses(double nodes) {
  return 2 * (nodes - 1) / nodes;
}

// A chain through the GPUs of a node, or their switch.
Cost treeInside(const Inside& inside, double gpus, double bytes) {
  if (gpus <= 1) return {};
  if (inside.switchGBps > 0)
    return {2 * inside.alphaUs, usOf(2 * (gpus - 1) / gpus * bytes, inside.switchGBps)};
  return {2 * (gpus - 1) * inside.alphaUs, usOf(2 * bytes, inside.GBps)};
}

// NCCL's trees between the nodes, and what goes on in the nodes at the same time.
Cost treeCost(const Cluster& cluster, const Operation& operation, double passes) {
  const double nodes = cluster.nodesOf(operation.gpus);
  const double inNode = std::min(operation.gpus, cluster.gpusPerNode);
  const Cost cost = treeInside(cluster.inside, inNode, operation.bytes);
  if (nodes <= 1) return cost;
  const Cost between = treeOfNodes(cluster, nodes, operation.bytes, passes);
  return {cost.latencyUs + between.latencyUs, std::max(cost.transferUs, between.transferUs)};
}

Cost betweenNodes(const Cluster& cluster, double nodes, double bytes) {
  Cluster flat = cluster;
  flat.gpusPerNode = 1;
  const Cost around = ringCost(flat, {Collective::allReduce, Algorithm::ring, nodes, bytes});
  const Cost up = treeOfNodes(cluster, nodes, bytes, doublePasses(nodes));
  return around.us() < up.us() ? around : up;
}

Cost hierarchicalCost(const Cluster& cluster, const Operation& operation) {
  const double nodes = cluster.nodesOf(operation.gpus);
  const double inNode = std::min(operation.gpus, cluster.gpusPerNode);
  Cost cost;
  if (inNode > 1)
    cost = {2 * (inNode - 1) * cluster.inside.alphaUs,
            usOf(2 * (inNode - 1) / inNode * operation.bytes, cluster.inside.GBps)};
  if (nodes <= 1) return cost;
  const Cost between = betweenNodes(cluster, nodes, operation.bytes);
  return {cost.latencyUs + between.latencyUs, cost.transferUs + between.transferUs};
}

Cost collnetCost(const Cluster& cluster, const Operation& operation) {
  const double nodes = cluster.nodesOf(operation.gpus);
  const double inNode = std::min(operation.gpus, cluster.gpusPerNode);
  if (nodes <= 1 || cluster.collnet.fanIn < 2) return hierarchicalCost(cluster, operation);
  Cost cost;
  if (inNode > 1)
    cost = {2 * (inNode - 1) * cluster.inside.alphaUs,
            usOf(2 * (inNode - 1) / inNode * operation.bytes, cluster.inside.GBps)};
  const Network& network = cluster.network;
  const double depth = std::ceil(std::log(nodes) / std::log(cluster.collnet.fanIn) - 1e-9);
  const double message = messageOf(network, operation.bytes);
  const double own = network.nodeGBps() * railShare(network, message);
  const double up = cluster.collnet.upGBps > 0 ? std::min(own, cluster.collnet.upGBps) : own;
  cost.latencyUs += 2 * depth * (stepUs(network, message) + cluster.collnet.hopUs);
  cost.transferUs += usOf(operation.bytes, up) + (2 * depth - 1) * usOf(message, network.railGBps);
  return cost;
}

Cost levelsCost(const Cluster& cluster, const Operation& operation) {
  const Network& network = cluster.network;
  const double rate = network.nodeGBps() / cluster.gpusPerNode;
  const double doublings = std::log2(operation.gpus);
  return {doublings * stepUs(network, messageOf(network, operation.bytes)),
          doublings * usOf(operation.bytes, rate)};
}

Cost allToAllCost(const Cluster& cluster, const Operation& operation) {
  const double nodes = cluster.nodesOf(operation.gpus);
  const double inNode = std::min(operation.gpus, cluster.gpusPerNode);
  const double perPeer = operation.bytes / operation.gpus;
  const double insideUs = inNode > 1 ? usOf(perPeer * (inNode - 1), cluster.inside.GBps) : 0;
  if (nodes <= 1) return {(inNode - 1) * cluster.inside.alphaUs, insideUs};
  const Network& network = cluster.network;
  const double message = std::min(network.chunkBytes, perPeer);
  const double rate = network.nodeGBps() / inNode * railShare(network, message);
  const double beyond = operation.gpus - inNode;
  return {beyond * stepUs(network, message), std::max(insideUs, usOf(perPeer * beyond, rate))};
}

Cost costWith(Algorithm algorithm, const Cluster& cluster, const Operation& operation) {
  switch (algorithm) {
    case Algorithm::best:
    case Algorithm::ring:
      return ringCost(cluster, operation);
    case Algorithm::tree:
      return treeCost(cluster, operation, 3);
    case Algorithm::doubleTree:
      return treeCost(cluster, operation, doublePasses(cluster.nodesOf(operation.gpus)));
    case Algorithm::hierarchical:
      return hierarchicalCost(cluster, operation);
    case Algorithm::collnet:
      return collnetCost(cluster, operation);
    case Algorithm::levels:
      return levelsCost(cluster, operation);
  }
  return {};
}

// By the protocol that carries such a part of a rank.
Cost costBy(Algorithm algorithm, const Cluster& cluster, const Operation& operation) {
  const bool small = operation.bytes / operation.gpus < cluster.network.low.belowBytes;
  return small ? costWith(algorithm, cluster.withLowLatency(), operation)
               : costWith(algorithm, cluster, operation);
}

}  // namespace

const std::vector<AlgorithmFacts>& algorithms() {
  static const std::vector<AlgorithmFacts> kFacts = {
      {Algorithm::best, "best",
       "the least of ring, double-tree, hierarchical and, where there is one, collnet",
       "as NCCL's tuner chooses by its own estimates"},
      {Algorithm::ring, "ring", "2((n-1-N) ai + N a) + 2(n-1)/n S/B",
       "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 2009"},
      {Algorithm::tree, "tree", "2(g-1) ai + 2 ceil(log2 N) a + 3S/B + fill",
       "a node takes 2S from its children and S from its parent; pipelined"},
      {Algorithm::doubleTree, "double-tree", "2(g-1) ai + 2 ceil(log2 N) a + 2(N-1)/N S/B + fill",
       "Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, "
       "2009"},
      {Algorithm::hierarchical, "hierarchical",
       "2(g-1) ai + 2(g-1)/g S/b + the lesser of ring and double tree over N nodes",
       "scatter inside the node, all-reduce between nodes, gather inside"},
      {Algorithm::collnet, "collnet",
       "2(g-1) ai + 2(g-1)/g S/b + 2d(a + p) + S/Bup + (2d-1) c/B, d = ceil(logk N)",
       "Graham et al., SHARP, COM-HPC 2016"},
      {Algorithm::levels, "levels", "log2 n (a + S/B1), B1 = rate of one GPU",
       "an observation, not a mechanism: recursive doubling with one rate on all levels (Thakur, "
       "Rabenseifner "
       "and Gropp 2005)"},
  };
  return kFacts;
}

const char* nameOf(Algorithm algorithm) {
  for (const AlgorithmFacts& facts : algorithms())
    if (facts.algorithm == algorithm) return facts.name;
  return "";
}

std::optional<Algorithm> algorithmNamed(const std::string& name) {
  for (const AlgorithmFacts& facts : algorithms())
    if (name == facts.name) return facts.algorithm;
  return std::nullopt;
}

const char* nameOf(Collective collective) {
  constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "alltoall"};
  return kNames[static_cast<size_t>(collective)];
}

std::optional<Collective> collectiveNamed(const std::string& name) {
  for (const Collective one :
       {Collective::allReduce, Collective::allGather, Collective::reduceScatter, Collective::allToAll})
    if (name == nameOf(one)) return one;
  return std::nullopt;
}

Algorithm chosen(const Cluster& cluster, const Operation& operation) {
  if (operation.algorithm != Algorithm::best) return operation.algorithm;
  if (operation.collective != Collective::allReduce) return Algorithm::ring;
  Algorithm least = Algorithm::ring;
  for (const Algorithm other : {Algorithm::doubleTree, Algorithm::hierarchical, Algorithm::collnet}) {
    if (other == Algorithm::collnet && cluster.collnet.fanIn < 2) continue;
    if (costBy(other, cluster, operation).us() < costBy(least, cluster, operation).us()) least = other;
  }
  return least;
}

// Gathers and scatters go round a ring but for the empirical law, whatever reduces.
Cost costOf(const Cluster& cluster, const Operation& operation) {
  if (operation.gpus < 2) return {};
  if (operation.collective == Collective::allToAll) return allToAllCost(cluster, operation);
  const Algorithm algorithm = chosen(cluster, operation);
  if (operation.collective != Collective::allReduce && algorithm != Algorithm::levels)
    return costBy(Algorithm::ring, cluster, operation);
  return costBy(algorithm, cluster, operation);
}

double busGBps(const Operation& operation, double us) {
  const double share = (operation.gpus - 1) / operation.gpus;
  const double factor = operation.collective == Collective::allReduce ? 2 * share : share;
  return us > 0 ? operation.bytes * factor / (us * kBytesPerUs) : 0;
}

}  // namespace weft::plan
