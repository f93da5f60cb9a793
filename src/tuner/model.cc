// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/tuner/model.h"

#include <algorithm>
#include <bit>
#include <cmath>

// Steps, rates and times of NCCL's algorithms.
namespace weft::tuner {

namespace {

// Shares of a node's rate that the data gets. LL sends 8 bytes for 4 bytes of data, LL128 sends 128 for 120.
// The factors for trees, and for LL on trees, are those of NCCL 2.30.7 (src/graph/tuning.cc: .92 x .85,
// 1/3.8).
constexpr double kTreeShare = 0.92 * 0.85;
constexpr double kLlRingShare = 0.5;
constexpr double kLlTreeShare = 1 / 3.8;
constexpr double kLl128Share = 120.0 / 128.0;

constexpr double kBytesPerUs = 1e3;  // bytes per microsecond at 1 GB/s

// Steps between nodes, steps within a node, and the load of the cards.
struct Steps {
  double network = 0;
  double inside = 0;
  double carried = 0;  // bytes through a node's cards for each byte of the operation
};

// The depth of a binary tree of nodes.
double logSteps(uint64_t nodes) {
  return static_cast<double>(std::bit_width(nodes - 1));
}

// A piece goes round once; for an all-reduce twice, to be reduced and then handed out. In each round it
// leaves every node.
std::optional<Steps> ringSteps(Collective collective, const Shape& shape) {
  double rounds = 0;
  if (collective == Collective::allReduce) rounds = 2;
  if (collective == Collective::allGather || collective == Collective::reduceScatter) rounds = 1;
  if (rounds == 0) return std::nullopt;
  const auto ranks = static_cast<double>(shape.ranks);
  const double steps = ranks - 1;
  const double network = std::min(steps, static_cast<double>(shape.nodes));
  return Steps{rounds * network, rounds * (steps - network), rounds * steps / ranks};
}

// Up and down a tree of nodes; within a node the ranks form a chain.
std::optional<Steps> treeSteps(Collective collective, const Shape& shape) {
  if (collective != Collective::allReduce) return std::nullopt;
  const double ranksOfNode = static_cast<double>(shape.ranks) / static_cast<double>(shape.nodes);
  return Steps{2 * logSteps(shape.nodes), 2 * (ranksOfNode - 1), 2};
}

// The same tree between nodes. Within a node the NVLink switch reduces in one step, and hands out in another.
std::optional<Steps> nvlsTreeSteps(Collective collective, const Shape& shape) {
  if (collective != Collective::allReduce) return std::nullopt;
  return Steps{2 * logSteps(shape.nodes), 2, 2};
}

std::optional<Steps> stepsOf(const Operation& operation, const Shape& shape) {
  switch (operation.algorithm) {
    case Algorithm::ring:
      return ringSteps(operation.collective, shape);
    case Algorithm::tree:
      return treeSteps(operation.collective, shape);
    case Algorithm::nvlsTree:
      if (operation.protocol != Protocol::simple) return std::nullopt;
      return nvlsTreeSteps(operation.collective, shape);
    default:
      return std::nullopt;
  }
}

double protocolShare(const Operation& operation) {
  if (operation.protocol == Protocol::simple) return 1;
  if (operation.protocol == Protocol::ll128) return kLl128Share;
  return operation.algorithm == Algorithm::ring ? kLlRingShare : kLlTreeShare;
}

// GB/s of the operation's own bytes; 0: unknown.
double rateOf(const Platform& platform, const Shape& shape, const Operation& operation, double carried) {
  double wire = platform.nodeGBps.value * protocolShare(operation);
  if (operation.algorithm == Algorithm::tree) wire *= kTreeShare;
  const Number& most = platform.llGBps[shape.nodes > 2 ? 1 : 0];
  if (operation.protocol == Protocol::ll && most.known()) wire = std::min(wire, most.value);
  const double rate = wire / carried;
  if (operation.algorithm != Algorithm::nvlsTree) return rate;
  return platform.nvlsTreeGBps.known() ? std::min(rate, platform.nvlsTreeGBps.value) : 0;
}

}  // namespace

const char* nameOf(Collective collective) {
  constexpr const char* kNames[kCollectives] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                "AllReduce"};
  return kNames[indexOf(collective)];
}

const char* nameOf(Algorithm algorithm) {
  constexpr const char* kNames[kAlgorithms] = {"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                               "NVLSTree", "PAT"};
  return kNames[indexOf(algorithm)];
}

const char* nameOf(Protocol protocol) {
  constexpr const char* kNames[kProtocols] = {"LL", "LL128", "Simple"};
  return kNames[indexOf(protocol)];
}

GpuLatencies defaultGpuLatencies() {
  GpuLatencies gpu;
  gpu.baseUs[indexOf(Algorithm::tree)] = {6.8, 14.0, 8.4};
  gpu.baseUs[indexOf(Algorithm::ring)] = {6.6, 14.0, 8.4};
  gpu.stepUs[indexOf(Algorithm::tree)] = {0.6, 1.25, 4.0};
  gpu.stepUs[indexOf(Algorithm::ring)] = {0.6, 1.9, 3.4};
  gpu.stepUs[indexOf(Algorithm::nvlsTree)] = {0, 0, 25};
  return gpu;
}

const char* gpuLatencySource() {
  return "NCCL 2.30.7 src/graph/tuning.cc, baseLatencies and hwLatencies for NVLink";
}

std::optional<Estimate> estimate(const Platform& platform, const GpuLatencies& gpu, const Shape& shape,
                                 const Operation& operation) {
  if (!shape.valid() || shape.nodes < 2 || !(operation.bytes >= 0)) return std::nullopt;
  const Number& hop = platform.hopUs[indexOf(operation.protocol)];
  if (!hop.known() || !platform.nodeGBps.known()) return std::nullopt;
  const auto steps = stepsOf(operation, shape);
  if (!steps) return std::nullopt;
  const double rate = rateOf(platform, shape, operation, steps->carried);
  if (!(rate > 0)) return std::nullopt;
  const size_t a = indexOf(operation.algorithm);
  const size_t p = indexOf(operation.protocol);
  const double once = gpu.baseUs[a][p] + steps->inside * gpu.stepUs[a][p] + steps->network * hop.value;
  const Estimate made{once * std::max(1, operation.pipelined), operation.bytes / (rate * kBytesPerUs)};
  if (!std::isfinite(made.us()) || made.us() < 0) return std::nullopt;
  return made;
}

}  // namespace weft::tuner
