// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/coll/scenarios.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "src/coll/kernels.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"
#include "tests/support/window_part.h"

namespace weft::test {

using coll::ElementType;
using coll::Operation;
using coll::OperationKind;
using coll::ReduceOp;

namespace {

size_t vectorBytes(const Operation& shape) {
  return std::max({shape.bytes, shape.windowBytes, size_t{1}});
}

}  // namespace

Run::Run(Ranks& ranks, const Operation& shape, uint64_t seed, int first) : ranks_(ranks), shape_(shape) {
  const auto count = static_cast<size_t>(ranks.count());
  for (int rank = 0; rank < (first ? first : ranks.count()); rank++) {
    vectors_.push_back(std::make_unique<Vectors>(ranks.group(rank), vectorBytes(shape),
                                                 seed * 100 + static_cast<uint64_t>(rank)));
    if (shape.kind != OperationKind::allGather)
      fillNumbers(shape.type, vectors_.back()->send, seed * 100 + static_cast<uint64_t>(rank));
  }
  requests_.resize(count);
  shapes_.assign(count, shape);
  done_.resize(count);
  inPlace_.resize(count);
  failures_.resize(count);
}

Operation Run::of(int rank) const {
  Operation operation = shapes_[static_cast<size_t>(rank)];
  const Vectors& data = *vectors_[static_cast<size_t>(rank)];
  operation.send = data.send.data();
  operation.receive = const_cast<std::byte*>(data.receive.data());
  operation.sendMemory = data.sendMemory;
  operation.receiveMemory = data.receiveMemory;
  if (inPlace_[static_cast<size_t>(rank)]) {
    operation.receive = const_cast<std::byte*>(data.send.data());
    operation.receiveMemory = data.sendMemory;
  }
  if (const auto found = elsewhere_.find(rank); found != elsewhere_.end()) {
    const auto& [send, receive] = found->second;
    if (send.data) operation.send = send.data, operation.sendMemory = send.memory;
    if (receive.data) operation.receive = receive.data, operation.receiveMemory = receive.memory;
  }
  return operation;
}

void Run::reduceInPlace(int rank) {
  inPlace_[static_cast<size_t>(rank)] = true;
}

bool Run::step(int rank) {
  const auto r = static_cast<size_t>(rank);
  if (done_[r] || failures_[r]) return true;
  coll::Group& group = ranks_.group(rank);
  if (!requests_[r]) {
    const coll::Started started = group.start(of(rank));
    requests_[r] = started.request;
    if (!started.ok) failures_[r] = group.error().message();
    return !started.ok;
  }
  const coll::Finished finished = group.test(requests_[r]);
  done_[r] = finished.done;
  if (!finished.ok) failures_[r] = group.error().message();
  return finished.done || !finished.ok;
}

void Run::finish(SeededRandom& random) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20 * patience());
  int left = ranks_.count();
  while (left > 0) {
    const int first = static_cast<int>(random.below(static_cast<uint64_t>(ranks_.count())));
    left = 0;
    for (int i = 0; i < ranks_.count(); i++)
      if (!step((first + i) % ranks_.count())) left++;
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
}

void Run::forget(int rank) {
  vectors_[static_cast<size_t>(rank)].reset();
  done_[static_cast<size_t>(rank)] = true;
}

void Run::leave(int rank) {
  forget(rank);
  ranks_.drop(rank);
}

void Run::change(int rank, const Operation& to) {
  shapes_[static_cast<size_t>(rank)] = to;
}

coll::Started Run::flush(int rank) {
  const Operation operation = of(rank);
  return ranks_.group(rank).flush(operation.receive, operation.bytes, operation.receiveMemory);
}

void Run::check() const {
  for (const auto& failure : failures_) REQUIRE(failure.value_or("") == "");
  shape_.kind == OperationKind::allGather ? checkGathered() : checkReduced();
}

void Run::checkReduced() const {
  std::vector<const void*> inputs;
  for (const auto& data : vectors_) inputs.push_back(data->send.data());
  const bool scatters = shape_.kind == OperationKind::reduceScatter;
  std::vector<std::byte> want(vectorBytes(shape_));
  coll::reduce(shape_.type, shape_.op, inputs, want.data(), scatters ? shape_.windowBytes : shape_.bytes);
  for (int rank = 0; rank < ranks_.count(); rank++) {
    INFO("rank " << rank);
    const auto [from, to] = scatters ? windowPart(shape_, rank) : std::pair<size_t, size_t>(0, shape_.bytes);
    REQUIRE(std::memcmp(result(rank).data(), want.data() + from, to - from) == 0);
  }
}

void Run::checkGathered() const {
  for (int rank = 0; rank < ranks_.count(); rank++) {
    INFO("rank " << rank);
    for (int from = 0; from < ranks_.count(); from++) {
      const auto [begin, end] = windowPart(shape_, from);
      REQUIRE(std::memcmp(result(rank).data() + begin, vectors_[static_cast<size_t>(from)]->send.data(),
                          end - begin) == 0);
    }
  }
}

Operation allReduce(size_t bytes, ElementType type, ReduceOp op) {
  Operation shape;
  shape.bytes = bytes;
  shape.type = type;
  shape.op = op;
  return shape;
}

Operation windowed(OperationKind kind, size_t bytesPerRank, size_t offset, size_t bytes, ElementType type) {
  Operation shape;
  shape.kind = kind;
  shape.type = type;
  shape.bytesPerRank = bytesPerRank;
  shape.windowOffset = offset;
  shape.windowBytes = bytes;
  return shape;
}

void checkSizes(Ranks& ranks) {
  SeededRandom random(1);
  for (const size_t bytes : {4, 8, 100, 2048, 2052, 8192, 65536, 65540, 300000, 2 << 20}) {
    INFO(bytes << " bytes");
    Run run(ranks, allReduce(bytes), bytes);
    run.finish(random);
    run.check();
  }
}

void checkTypes(Ranks& ranks) {
  SeededRandom random(2);
  for (size_t type = 0; type < coll::kElementTypes; type++) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
      if (!coll::canReduce(static_cast<ElementType>(type), op)) continue;
      INFO(coll::nameOf(static_cast<ElementType>(type)) << " " << coll::nameOf(op));
      Run run(ranks, allReduce(24000, static_cast<ElementType>(type), op), type);
      run.finish(random);
      run.check();
    }
  }
}

void checkWindows(Ranks& ranks) {
  SeededRandom random(3);
  const size_t each = 10000;
  const auto all = each * static_cast<size_t>(ranks.count());
  const std::pair<size_t, size_t> windows[] = {{0, all},       {0, each},          {400, 8},
                                               {each - 8, 16}, {each, all - each}, {all - 4, 4}};
  for (const auto& [offset, bytes] : windows) {
    if (offset + bytes > all || bytes == 0) continue;
    for (const OperationKind kind : {OperationKind::allGather, OperationKind::reduceScatter}) {
      INFO("window of " << bytes << " at " << offset);
      Run run(ranks, windowed(kind, each, offset, bytes), offset + bytes);
      run.finish(random);
      run.check();
    }
  }
}

void checkManyAtOnce(Ranks& ranks, int rounds) {
  SeededRandom random(4);
  for (int round = 0; round < rounds; round++) {
    std::vector<std::unique_ptr<Run>> runs;
    for (uint64_t i = 0; i < 8; i++) {
      const size_t bytes = 4 * (1 + random.below(i % 2 ? 500 : 40000));
      runs.push_back(std::make_unique<Run>(ranks, allReduce(bytes), static_cast<uint64_t>(round) * 8 + i));
    }
    // Each rank starts them in order; how far it is beside the others, chance decides.
    std::vector<size_t> started(static_cast<size_t>(ranks.count()));
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20 * patience());
    bool all = false;
    while (!all) {
      const auto rank = random.below(started.size());
      for (size_t i = 0; i < std::min(started[rank] + 1, runs.size()); i++)
        runs[i]->step(static_cast<int>(rank));
      started[rank] = std::min(started[rank] + random.below(2), runs.size() - 1);
      all = std::all_of(runs.begin(), runs.end(), [&](const auto& run) {
        for (int r = 0; r < ranks.count(); r++)
          if (!run->done(r) && !run->failure(r)) return false;
        return true;
      });
      REQUIRE(std::chrono::steady_clock::now() < limit);
    }
    for (const auto& run : runs) run->check();
  }
}

}  // namespace weft::test
