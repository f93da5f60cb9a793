// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <string>

#include "tools/perf/collective.h"

// The operations `weft perf` knows: one row each in operation.cc. Pure functions over a constant table; any
// thread.
namespace weft::perf {

enum class Movement : uint8_t {
  allReduce,
  allGather,
  reduceScatter,
  broadcast,
  allToAll,
  sendRecv,
  pingPong,
  messageRate,
  put,
  putSignal,
  get
};

struct Operation {
  const char* name;       // nccl-tests' name without "_perf"
  const char* algorithm;  // "ring", "tree", "collnet", "p2p" or "rma"
  Movement movement;
  bool reduces;  // -o matters
  bool rooted;   // -r matters
  // The data has a part for every rank; otherwise it is one whole.
  bool inParts;
  bool inPlace;  // NCCL defines it in place
  int ways;      // instances that one channel consists of
  int legs;      // messages of the size that follow each other in an iteration; times are of one of them
  MakeCollective make;
  // True where `from` has a connection to `to`, in the instance of that number.
  bool (*connects)(int from, int to, int size, int instance);

  bool inPairs() const {
    return movement == Movement::pingPong || movement == Movement::messageRate || oneSided();
  }
  bool offloaded() const;  // the plugin does it, by its table for that
  bool oneSided() const;   // by the plugin's table of one-sided operations

  // Bus bandwidth over algorithm bandwidth, as nccl-tests defines it: what it would take of the network if
  // every byte crossed it as seldom as it can.
  double busFactor(int size) const;
};

// Every operation, the default algorithm of each name first.
std::span<const Operation> operations();

// An empty algorithm is the default one. The error names what there is.
Result<const Operation*> findOperation(const std::string& name, const std::string& algorithm);

}  // namespace weft::perf
