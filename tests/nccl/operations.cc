// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/nccl/operations.h"

#include <algorithm>
#include <functional>
#include <map>

namespace nccltest {

namespace {

// What the operations differ in. `give` is what rank `from` has at an element, `get` what has to come out at
// this rank.
struct Shape {
  int type;
  size_t givenCount, gottenCount;
  std::function<double(size_t)> give, get;
  std::function<void(char*, char*)> enqueue;
};

class Shaped : public Operation {
 public:
  Shaped(std::string name, Shape shape)
      : name_(std::move(name)),
        shape_(std::move(shape)),
        in_(shape_.type, shape_.givenCount),
        out_(shape_.type, shape_.gottenCount) {
    in_.fill(shape_.give);
  }
  void enqueue() override { shape_.enqueue(in_.at(0), out_.at(0)); }
  bool isRight() const override { return out_.holds(shape_.get, name_.c_str()); }

 private:
  const std::string name_;
  const Shape shape_;
  Buffer in_, out_;
};

constexpr size_t kFloat = 4;

size_t floats(size_t bytes) {
  return std::max<size_t>(bytes / kFloat, 1);
}

// Each rank's part of `bytes`, in bytes.
size_t share(const Rank& rank, size_t bytes) {
  return std::max<size_t>(bytes / static_cast<size_t>(rank.ranks), 1);
}

Shape allReduce(const Rank& rank, size_t bytes) {
  const size_t count = floats(bytes);
  return {kFloat32,
          count,
          count,
          [rank](size_t i) { return given(rank.rank, i); },
          [rank](size_t i) { return reduced(kSum, rank.ranks, i); },
          [rank, count](char* in, char* out) {
            expect(nccl.allReduce(in, out, count, kFloat32, kSum, rank.comm, rank.stream), "ncclAllReduce");
          }};
}

Shape allGather(const Rank& rank, size_t bytes) {
  const size_t count = share(rank, bytes);
  return {kInt8,
          count,
          count * static_cast<size_t>(rank.ranks),
          [rank](size_t i) { return given(rank.rank, i); },
          [count](size_t i) { return given(static_cast<int>(i / count), i % count); },
          [rank, count](char* in, char* out) {
            expect(nccl.allGather(in, out, count, kInt8, rank.comm, rank.stream), "ncclAllGather");
          }};
}

Shape reduceScatter(const Rank& rank, size_t bytes) {
  const size_t count = floats(share(rank, bytes)), mine = count * static_cast<size_t>(rank.rank);
  return {kFloat32,
          count * static_cast<size_t>(rank.ranks),
          count,
          [rank](size_t i) { return given(rank.rank, i); },
          [rank, mine](size_t i) { return reduced(kSum, rank.ranks, mine + i); },
          [rank, count](char* in, char* out) {
            expect(nccl.reduceScatter(in, out, count, kFloat32, kSum, rank.comm, rank.stream),
                   "ncclReduceScatter");
          }};
}

Shape broadcast(const Rank& rank, size_t bytes) {
  const size_t count = floats(bytes);
  return {kFloat32,
          count,
          count,
          [rank](size_t i) { return given(rank.rank, i); },
          [](size_t i) { return given(0, i); },
          [rank, count](char* in, char* out) {
            expect(nccl.broadcast(in, out, count, kFloat32, 0, rank.comm, rank.stream), "ncclBroadcast");
          }};
}

Shape sendAndReceive(const Rank& rank, size_t bytes) {
  const size_t count = floats(bytes);
  const int to = (rank.rank + 1) % rank.ranks, from = (rank.rank + rank.ranks - 1) % rank.ranks;
  return {kFloat32,
          count,
          count,
          [rank](size_t i) { return given(rank.rank, i); },
          [from](size_t i) { return given(from, i); },
          [rank, count, to, from](char* in, char* out) {
            expect(nccl.groupStart(), "ncclGroupStart");
            expect(nccl.send(in, count, kFloat32, to, rank.comm, rank.stream), "ncclSend");
            expect(nccl.recv(out, count, kFloat32, from, rank.comm, rank.stream), "ncclRecv");
            expect(nccl.groupEnd(), "ncclGroupEnd");
          }};
}

// What a rank gives to another one differs from what it gives to the next.
double block(int from, int to, size_t index) {
  return static_cast<double>((static_cast<size_t>(from) * 5 + static_cast<size_t>(to) * 3 + index) % 100);
}

void exchange(const Rank& rank, size_t count, char* in, char* out) {
  expect(nccl.groupStart(), "ncclGroupStart");
  for (int peer = 0; peer < rank.ranks; ++peer) {
    const size_t at = static_cast<size_t>(peer) * count;
    expect(nccl.send(in + at, count, kInt8, peer, rank.comm, rank.stream), "ncclSend");
    expect(nccl.recv(out + at, count, kInt8, peer, rank.comm, rank.stream), "ncclRecv");
  }
  expect(nccl.groupEnd(), "ncclGroupEnd");
}

Shape allToAll(const Rank& rank, size_t bytes) {
  const size_t count = share(rank, bytes), all = count * static_cast<size_t>(rank.ranks);
  return {kInt8,
          all,
          all,
          [rank, count](size_t i) { return block(rank.rank, static_cast<int>(i / count), i % count); },
          [rank, count](size_t i) { return block(static_cast<int>(i / count), rank.rank, i % count); },
          [rank, count](char* in, char* out) { exchange(rank, count, in, out); }};
}

}  // namespace

std::unique_ptr<Operation> makeOperation(const std::string& name, const Rank& rank, size_t bytes) {
  static const std::map<std::string, Shape (*)(const Rank&, size_t)> kShapes{
      {"all_reduce", allReduce}, {"all_gather", allGather},     {"reduce_scatter", reduceScatter},
      {"broadcast", broadcast},  {"send_recv", sendAndReceive}, {"all_to_all", allToAll}};
  const auto found = kShapes.find(name);
  return found == kShapes.end() ? nullptr : std::make_unique<Shaped>(name, found->second(rank, bytes));
}

}  // namespace nccltest
