// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/operation.h"

#include <array>

#include "tools/perf/tree.h"

namespace weft::perf {

namespace {

bool aroundRing(int from, int to, int size, int) {
  return size > 1 && to == (from + 1) % size;
}

// A rank that is alone sends to itself.
bool toNext(int from, int to, int size, int) {
  return to == (from + 1) % size;
}

bool alongTree(int from, int to, int size, int instance) {
  return treeNeighbours(from, to, size, instance % 2);
}

bool toEveryOther(int from, int to, int, int) {
  return from != to;
}

constexpr std::array kOperations = {
    Operation{"all_reduce", "ring", Movement::allReduce, true, false, false, true, 1, makeRingAllReduce,
              aroundRing},
    Operation{"all_reduce", "tree", Movement::allReduce, true, false, false, true, 2, makeTreeAllReduce,
              alongTree},
    Operation{"all_gather", "ring", Movement::allGather, false, false, true, true, 1, makeRingAllGather,
              aroundRing},
    Operation{"reduce_scatter", "ring", Movement::reduceScatter, true, false, true, true, 1,
              makeRingReduceScatter, aroundRing},
    Operation{"broadcast", "ring", Movement::broadcast, false, true, false, true, 1, makeRingBroadcast,
              aroundRing},
    Operation{"alltoall", "p2p", Movement::allToAll, false, false, true, false, 1, makeAllToAll,
              toEveryOther},
    Operation{"sendrecv", "p2p", Movement::sendRecv, false, false, false, false, 1, makeSendRecv, toNext},
};

}  // namespace

double Operation::busFactor(int size) const {
  const double others = static_cast<double>(size - 1) / size;
  if (movement == Movement::allReduce) return 2 * others;
  return inParts ? others : 1;
}

std::span<const Operation> operations() {
  return kOperations;
}

Result<const Operation*> findOperation(const std::string& name, const std::string& algorithm) {
  std::string known;
  for (const Operation& operation : kOperations) {
    if (name != operation.name) continue;
    if (algorithm.empty() || algorithm == operation.algorithm) return &operation;
    known += std::string(" ") + operation.algorithm;
  }
  if (!known.empty())
    return Error(Code::invalidArgument, "command line", "--algo " + algorithm + ": " + name + " has" + known);
  return Error(Code::invalidArgument, "command line", "no operation " + name + ", see --help");
}

}  // namespace weft::perf
