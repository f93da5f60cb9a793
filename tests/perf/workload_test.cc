// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// That verification can fail: by data which was never moved, by one element, by data of another iteration.
#include "tools/perf/workload.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/catch.h"

namespace weft::perf {

namespace {

constexpr size_t kBytes = 64 * 1024;

Case makeCase(const Operation& operation, int rank, int size) {
  Case c;
  c.operation = &operation;
  c.type = parseTypes("int32")->front();
  c.root = size - 1;
  c.rank = rank;
  c.size = size;
  c.setBytes(kBytes);
  return c;
}

// What a rank passes in, as it is before the operation.
std::vector<std::byte> inputOf(const Case& like, int rank, uint64_t number) {
  Case c = like;
  c.rank = rank;
  c.inPlace = false;
  const Workload workload = Workload::create(kBytes).take();
  workload.fillInput(c, 0, number);
  const std::byte* data = workload.work(c, 0, 0, 0).input;
  return {data, data + c.inputCount() * c.type->bytes};
}

// The operation by its definition, all ranks in one place.
std::vector<std::byte> resultOf(const Case& c, uint64_t number) {
  const size_t part = c.part * c.type->bytes;
  const auto at = [&](int rank) { return static_cast<size_t>(rank) * part; };
  std::vector<std::byte> all;
  switch (c.operation->movement) {
    case Movement::broadcast:
      return inputOf(c, c.root, number);
    case Movement::sendRecv:
      return inputOf(c, (c.rank + c.size - 1) % c.size, number);
    case Movement::pingPong:
    case Movement::messageRate:
    case Movement::put:
    case Movement::putSignal:
    case Movement::get:
      return inputOf(c, c.rank ^ 1, number);
    case Movement::allGather:
    case Movement::allToAll:
      for (int r = 0; r < c.size; ++r) {
        const auto input = inputOf(c, r, number);
        const size_t from = c.operation->movement == Movement::allToAll ? at(c.rank) : 0;
        all.insert(all.end(), input.data() + from, input.data() + from + part);
      }
      return all;
    default:
      all = inputOf(c, 0, number);
      for (int r = 1; r < c.size; ++r)
        c.type->reduce(c.op, all.data(), all.data(), inputOf(c, r, number).data(), c.total);
      if (c.operation->movement == Movement::reduceScatter)
        return {all.data() + at(c.rank), all.data() + at(c.rank) + part};
      return all;
  }
}

TEST_CASE("a right result is right, anything else is not") {
  const Workload workload = Workload::create(2 * kBytes).take();
  for (const Operation& operation : operations()) {
    for (const int rank : {0, 1, 2}) {
      // Of a pair the first one receives nothing where only the other one is sent to.
      const bool oneWay = operation.movement == Movement::messageRate || operation.movement == Movement::put;
      if (operation.inPairs() && (rank == 2 || (rank == 0 && oneWay))) continue;
      for (const bool inPlace : {false, true}) {
        INFO(operation.name << " " << operation.algorithm << ", rank " << rank
                            << (inPlace ? ", in place" : ""));
        Case c = makeCase(operation, rank, operation.inPairs() ? 2 : 3);
        c.inPlace = inPlace;
        workload.fillInput(c, 1, 5);
        const bool stays = operation.movement == Movement::broadcast && rank == c.root && inPlace;
        REQUIRE((workload.countWrong(c, 1, 5, false) == 0) == stays);
        const auto result = resultOf(c, 5);
        std::byte* output = workload.work(c, 1, 0, 0).output;
        std::memcpy(output, result.data(), result.size());
        REQUIRE(workload.countWrong(c, 1, 5, false) == 0);
        REQUIRE(workload.countWrong(c, 1, 6, false) > 0);
        output[result.size() - 1] ^= std::byte{1};
        REQUIRE(workload.countWrong(c, 1, 5, false) == 1);
      }
    }
  }
}

// Page faults of memory that nobody touched would be measured as the plugin's time.
TEST_CASE("results have their memory before anything is measured") {
  Workload workload = Workload::create(16 * kBytes).take();
  workload.prepare(3 * kBytes);
  workload.prepare(16 * kBytes);
  const Case c = makeCase(*findOperation("all_reduce", "").take(), 0, 3);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t slot = 0; slot < 16; ++slot) {
    std::vector<unsigned char> present(kBytes / page);
    std::byte* output = workload.work(c, slot, 0, 0).output;
    std::byte* begin = output - reinterpret_cast<uintptr_t>(output) % page;
    REQUIRE(mincore(begin, present.size() * page, present.data()) == 0);
    REQUIRE(std::all_of(present.begin(), present.end(), [](unsigned char one) { return (one & 1) != 0; }));
  }
}

TEST_CASE("what does not divide among the ranks is left out") {
  for (const Operation& operation : operations()) {
    Case c = makeCase(operation, 0, 3);
    c.setBytes(4 * 100 + 3);
    REQUIRE(c.total == (operation.inParts ? 99u : 100u));
    REQUIRE(c.count() == (operation.inParts ? 33u : 100u));
  }
}

// nccl-tests' PERFORMANCE.md
TEST_CASE("bus bandwidth over algorithm bandwidth") {
  REQUIRE((*findOperation("all_reduce", ""))->busFactor(4) == 1.5);
  REQUIRE((*findOperation("all_reduce", "tree"))->busFactor(4) == 1.5);
  REQUIRE((*findOperation("all_gather", ""))->busFactor(4) == 0.75);
  REQUIRE((*findOperation("reduce_scatter", ""))->busFactor(4) == 0.75);
  REQUIRE((*findOperation("alltoall", ""))->busFactor(4) == 0.75);
  REQUIRE((*findOperation("broadcast", ""))->busFactor(4) == 1);
  REQUIRE((*findOperation("sendrecv", ""))->busFactor(4) == 1);
  REQUIRE_FALSE(findOperation("sendrecv", "tree"));
}

}  // namespace

}  // namespace weft::perf
