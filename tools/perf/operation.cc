// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/operation.h"

#include <array>
#include <string>
#include <vector>

#include "src/base/nearest.h"
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

bool byOffload(int, int, int, int) {
  return false;
}

bool byWindows(int, int, int, int) {
  return false;
}

// Ranks 0 and 1 are partners, 2 and 3, and so on.
bool bothWays(int from, int to, int, int) {
  return from != to && from / 2 == to / 2;
}

bool toPartner(int from, int to, int, int) {
  return from % 2 == 0 && to == from + 1;
}

bool toEveryOther(int from, int to, int, int) {
  return from != to;
}

constexpr std::array kOperations = {
    Operation{"all_reduce", "ring", Movement::allReduce, true, false, false, true, 1, 1, makeRingAllReduce,
              aroundRing},
    Operation{"all_reduce", "tree", Movement::allReduce, true, false, false, true, 2, 1, makeTreeAllReduce,
              alongTree},
    Operation{"all_reduce", "collnet", Movement::allReduce, true, false, false, true, 1, 1,
              makeOffloadedAllReduce, byOffload},
    Operation{"all_gather", "ring", Movement::allGather, false, false, true, true, 1, 1, makeRingAllGather,
              aroundRing},
    Operation{"all_gather", "collnet", Movement::allGather, false, false, true, true, 1, 1,
              makeOffloadedAllGather, byOffload},
    Operation{"reduce_scatter", "ring", Movement::reduceScatter, true, false, true, true, 1, 1,
              makeRingReduceScatter, aroundRing},
    Operation{"reduce_scatter", "collnet", Movement::reduceScatter, true, false, true, true, 1, 1,
              makeOffloadedReduceScatter, byOffload},
    Operation{"broadcast", "ring", Movement::broadcast, false, true, false, true, 1, 1, makeRingBroadcast,
              aroundRing},
    Operation{"alltoall", "p2p", Movement::allToAll, false, false, true, false, 1, 1, makeAllToAll,
              toEveryOther},
    Operation{"sendrecv", "p2p", Movement::sendRecv, false, false, false, false, 1, 1, makeSendRecv, toNext},
    Operation{"pingpong", "p2p", Movement::pingPong, false, false, false, false, 1, 2, makePingPong,
              bothWays},
    Operation{"msgrate", "p2p", Movement::messageRate, false, false, false, false, 1, kRateWindow,
              makeMessageRate, toPartner},
    Operation{"put", "rma", Movement::put, false, false, false, false, 1, kPutWindow, makePut, byWindows},
    Operation{"put_signal", "rma", Movement::putSignal, false, false, false, false, 1, 2, makePutSignal,
              byWindows},
    Operation{"get", "rma", Movement::get, false, false, false, false, 1, 1, makeGet, byWindows},
};

}  // namespace

bool Operation::offloaded() const {
  return connects == byOffload;
}

bool Operation::oneSided() const {
  return connects == byWindows;
}

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
  std::vector<std::string> names;
  std::string all;
  for (const Operation& operation : kOperations) {
    if (!names.empty() && names.back() == operation.name) continue;
    names.emplace_back(operation.name);
    all += (all.empty() ? "" : ", ") + names.back();
  }
  const std::string nearest = nearestWord(name, names);
  return Error(Code::invalidArgument, "command line",
               name + ": no such operation" + (nearest.empty() ? "" : "; did you mean " + nearest + "?") +
                   "; there are " + all);
}

}  // namespace weft::perf
