// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

// The time that a collective between nodes should take: latency times steps plus bytes over bandwidth, for
// each algorithm and protocol of NCCL. Pure functions of values that all ranks of a communicator share, so
// all ranks come to the same result. Times are in microseconds, rates in GB/s (1e9 bytes). Any thread.
namespace weft::tuner {

// By NCCL's numbers, since they index NCCL's tables; plugin/tuner.cc checks them at compile time.
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

// A number and its source. Without a source there is no number, and an estimate that needs the number is not
// made.
struct Number {
  double value = 0;
  std::string source;
  bool known() const { return value > 0 && !source.empty(); }
};

// A fabric and the machines on it.
struct Platform {
  std::string name;
  std::array<Number, kProtocols> hopUs;  // a step from node to node, proxies and completion included
  Number nodeGBps;      // the rate at which a node sends, and receives at the same time, over all cards
  Number nvlsTreeGBps;  // the most that the NVLink side of NVLSTree lets through, in bytes of the operation
  std::array<Number, 2> llGBps;  // the most that LL carries: on two nodes, on more; unknown: no such limit
};

// NCCL's assumptions about the GPU side, in microseconds: per operation, and per step within a node.
struct GpuLatencies {
  using Table = std::array<std::array<double, kProtocols>, kAlgorithms>;
  Table baseUs{};
  Table stepUs{};
};
GpuLatencies defaultGpuLatencies();  // those of NCCL 2.30.7; NCCL's tuner tables from v5 on bring their own
const char* gpuLatencySource();

// The size of a communicator.
struct Shape {
  uint64_t nodes = 0;
  uint64_t ranks = 0;
  bool valid() const { return nodes > 0 && ranks >= nodes; }
};

// An operation in NCCL's terms.
struct Operation {
  Collective collective = Collective::allReduce;
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  double bytes = 0;   // of the larger of a rank's input and output, as NCCL counts
  int pipelined = 1;  // the number of operations that NCCL launches as one
};

struct Estimate {
  double latencyUs = 0;
  double transferUs = 0;
  double us() const { return latencyUs + transferUs; }
};

// Nothing where the shape has no network in it, where NCCL has no such algorithm for the collective, or where
// the platform lacks a number. The time is never negative. It never falls with more bytes, with more nodes of
// as many ranks each, or with more ranks on as many nodes.
std::optional<Estimate> estimate(const Platform& platform, const GpuLatencies& gpu, const Shape& shape,
                                 const Operation& operation);

}  // namespace weft::tuner
