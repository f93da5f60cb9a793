// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

// The time that a collective between nodes should take: latency times steps plus bytes over bandwidth, for
// each algorithm and protocol of NCCL. Pure functions of values that all ranks of a communicator share, so
// all of them come to the same result. Times in microseconds, rates in GB/s (1e9 bytes). Any thread.
namespace weft::tuner {

// Numbered as NCCL numbers them, since they index its tables; plugin/tuner.cc proves it.
enum class Collective : int { broadcast, reduce, allGather, reduceScatter, allReduce };
enum class Algorithm : int { tree, ring, collnetDirect, collnetChain, nvls, nvlsTree, pat };
enum class Protocol : int { ll, ll128, simple };
constexpr int kCollectives = 5;
constexpr int kAlgorithms = 7;
constexpr int kProtocols = 3;

const char* nameOf(Collective collective);
const char* nameOf(Algorithm algorithm);
const char* nameOf(Protocol protocol);

template <class Index>
constexpr size_t indexOf(Index index) {
  return static_cast<size_t>(index);
}

// A number and who says so. Without a source there is no number, and what would need it is not estimated.
struct Number {
  double value = 0;
  std::string source;
  bool known() const { return value > 0 && !source.empty(); }
};

// A fabric with the machines on it.
struct Platform {
  std::string name;
  std::array<Number, kProtocols> hopUs;  // one step from node to node, proxies and completion included
  Number nodeGBps;                       // what a node sends, and receives at the same time, over all cards
  Number nvlsTreeGBps;  // most that the NVLink side of NVLSTree lets through, as bytes of the operation
  std::array<Number, 2> llGBps;  // most that LL carries: two nodes, more; unknown: no such limit
};

// NCCL's assumptions about the GPU side: per operation, and per step within a node.
struct GpuLatencies {
  using Table = std::array<std::array<double, kProtocols>, kAlgorithms>;
  Table baseUs{};
  Table stepUs{};
};
GpuLatencies defaultGpuLatencies();  // NCCL 2.30.7's; its tuner tables from v5 on hand in their own
const char* gpuLatencySource();

struct Shape {
  uint64_t nodes = 0;
  uint64_t ranks = 0;
  bool valid() const { return nodes > 0 && ranks >= nodes; }
};

struct Operation {
  Collective collective = Collective::allReduce;
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  double bytes = 0;   // of the larger of what a rank gives and gets, as NCCL counts
  int pipelined = 1;  // operations that NCCL launches as one
};

struct Estimate {
  double latencyUs = 0;
  double transferUs = 0;
  double us() const { return latencyUs + transferUs; }
};

// Nothing where the shape has no network in it, where NCCL has no such algorithm for the collective, or where
// the platform lacks a number. Never negative, and never less for more bytes, or for more nodes of as many
// ranks each, or more ranks on as many nodes.
std::optional<Estimate> estimate(const Platform& platform, const GpuLatencies& gpu, const Shape& shape,
                                 const Operation& operation);

}  // namespace weft::tuner
