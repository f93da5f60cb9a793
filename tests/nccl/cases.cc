// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/nccl/cases.h"

#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "tests/nccl/data.h"

namespace nccltest {

namespace {

const std::vector<size_t> kSizes{1, 3, 1000, 65537, 1048577};

bool allReduceOf(const Rank& rank, int type, int op, size_t count, bool inPlace) {
  Buffer in(type, count), out(type, count);
  in.fill([&](size_t i) { return given(rank.rank, i); });
  char* const target = inPlace ? in.at(0) : out.at(0);
  expect(nccl.allReduce(in.at(0), target, count, type, op, rank.comm, rank.stream), "ncclAllReduce");
  finish(rank, "ncclAllReduce");
  return (inPlace ? in : out).holds([&](size_t i) { return reduced(op, rank.ranks, i); }, "all_reduce");
}

bool allReduce(Rank& rank) {
  bool good = true;
  for (const size_t count : kSizes) {
    good = good && allReduceOf(rank, kFloat32, kSum, count, false) &&
           allReduceOf(rank, kFloat32, kSum, count, true);
  }
  return good;
}

bool typesAndOperators(Rank& rank) {
  bool good = true;
  for (int type = kInt8; type <= kBfloat16; ++type) {
    for (int op = kSum; op <= kAvg; ++op) good = good && allReduceOf(rank, type, op, 1001, false);
  }
  return good;
}

bool allGather(Rank& rank) {
  for (const size_t count : kSizes) {
    Buffer in(kFloat32, count), out(kFloat32, count * static_cast<size_t>(rank.ranks));
    in.fill([&](size_t i) { return given(rank.rank, i); });
    expect(nccl.allGather(in.at(0), out.at(0), count, kFloat32, rank.comm, rank.stream), "ncclAllGather");
    finish(rank, "ncclAllGather");
    if (!out.holds([&](size_t i) { return given(static_cast<int>(i / count), i % count); }, "all_gather"))
      return false;
  }
  return true;
}

bool reduceScatter(Rank& rank) {
  for (const size_t count : kSizes) {
    Buffer in(kFloat32, count * static_cast<size_t>(rank.ranks)), out(kFloat32, count);
    in.fill([&](size_t i) { return given(rank.rank, i); });
    expect(nccl.reduceScatter(in.at(0), out.at(0), count, kFloat32, kSum, rank.comm, rank.stream),
           "ncclReduceScatter");
    finish(rank, "ncclReduceScatter");
    const size_t mine = count * static_cast<size_t>(rank.rank);
    if (!out.holds([&](size_t i) { return reduced(kSum, rank.ranks, mine + i); }, "reduce_scatter"))
      return false;
  }
  return true;
}

bool broadcastAndReduce(Rank& rank) {
  for (int root = 0; root < rank.ranks; ++root) {
    for (const size_t count : kSizes) {
      Buffer in(kFloat32, count), out(kFloat32, count);
      in.fill([&](size_t i) { return given(rank.rank, i); });
      expect(nccl.broadcast(in.at(0), out.at(0), count, kFloat32, root, rank.comm, rank.stream),
             "ncclBroadcast");
      finish(rank, "ncclBroadcast");
      if (!out.holds([&](size_t i) { return given(root, i); }, "broadcast")) return false;
      expect(nccl.reduce(in.at(0), out.at(0), count, kFloat32, kSum, root, rank.comm, rank.stream),
             "ncclReduce");
      finish(rank, "ncclReduce");
      if (rank.rank == root && !out.holds([&](size_t i) { return reduced(kSum, rank.ranks, i); }, "reduce"))
        return false;
    }
  }
  return true;
}

// Each rank to each, in one group; what goes to a rank differs from what goes to the next.
bool allToAll(Rank& rank) {
  for (const size_t count : kSizes) {
    const auto ranks = static_cast<size_t>(rank.ranks);
    Buffer in(kInt32, count * ranks), out(kInt32, count * ranks);
    in.fill([&](size_t i) {
      return rank.rank * 1000.0 + static_cast<double>(i / count) + static_cast<double>(i % 13) * 10000;
    });
    expect(nccl.groupStart(), "ncclGroupStart");
    for (size_t peer = 0; peer < ranks; ++peer) {
      expect(nccl.send(in.at(peer * count), count, kInt32, static_cast<int>(peer), rank.comm, rank.stream),
             "ncclSend");
      expect(nccl.recv(out.at(peer * count), count, kInt32, static_cast<int>(peer), rank.comm, rank.stream),
             "ncclRecv");
    }
    expect(nccl.groupEnd(), "ncclGroupEnd");
    finish(rank, "all to all");
    const auto wanted = [&](size_t i) {
      const size_t there = static_cast<size_t>(rank.rank) * count + i % count;
      return static_cast<double>(i / count) * 1000.0 + rank.rank + static_cast<double>(there % 13) * 10000;
    };
    if (!out.holds(wanted, "all to all")) return false;
  }
  return true;
}

// Even and odd ranks go apart, and the parent still works.
bool split(Rank& rank) {
  Rank part = rank;
  expect(nccl.commSplit(rank.comm, rank.rank % 2, rank.rank, &part.comm, nullptr), "ncclCommSplit");
  expect(nccl.commCount(part.comm, &part.ranks), "ncclCommCount");
  expect(nccl.commUserRank(part.comm, &part.rank), "ncclCommUserRank");
  const bool good =
      allReduceOf(part, kFloat32, kSum, 5000, false) && allReduceOf(rank, kFloat32, kSum, 5000, false);
  expect(nccl.commDestroy(part.comm), "ncclCommDestroy");
  return good;
}

bool graph(Rank& rank) {
  constexpr size_t kCount = 20000;
  Buffer in(kFloat32, kCount), out(kFloat32, kCount);
  in.fill([&](size_t i) { return given(rank.rank, i); });
  void *captured = nullptr, *run = nullptr;
  constexpr int kThreadLocal = 1;
  expect(cuda.streamBeginCapture(rank.stream, kThreadLocal), "cudaStreamBeginCapture");
  expect(nccl.allReduce(in.at(0), out.at(0), kCount, kFloat32, kSum, rank.comm, rank.stream),
         "ncclAllReduce, captured");
  expect(cuda.streamEndCapture(rank.stream, &captured), "cudaStreamEndCapture");
  expect(cuda.graphInstantiate(&run, captured, 0), "cudaGraphInstantiate");
  bool good = true;
  for (int turn = 0; turn < 5 && good; ++turn) {
    expect(cuda.memset(out.at(0), 0, kCount * typeSize(kFloat32)), "cudaMemset");
    expect(cuda.graphLaunch(run, rank.stream), "cudaGraphLaunch");
    finish(rank, "graph");
    good = out.holds([&](size_t i) { return reduced(kSum, rank.ranks, i); }, "graph");
  }
  expect(cuda.graphExecDestroy(run), "cudaGraphExecDestroy");
  expect(cuda.graphDestroy(captured), "cudaGraphDestroy");
  return good && allReduceOf(rank, kFloat32, kSum, 1000, false);
}

// Rank 0 never comes; the others abort, which has to return soon. The communicator is gone then.
bool abortInTheMiddle(Rank& rank) {
  if (!allReduceOf(rank, kFloat32, kSum, 1000, false)) return false;
  Buffer in(kFloat32, 100000);
  if (rank.rank != 0) {
    expect(nccl.allReduce(in.at(0), in.at(0), 100000, kFloat32, kSum, rank.comm, rank.stream),
           "ncclAllReduce");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  } else {
    letOthersFinish();
  }
  const auto begin = std::chrono::steady_clock::now();
  expect(nccl.commAbort(rank.comm), "ncclCommAbort");
  rank.comm = nullptr;
  const auto took = std::chrono::steady_clock::now() - begin;
  if (took > std::chrono::seconds(5)) std::fprintf(stderr, "ncclCommAbort took more than 5 s\n");
  return took <= std::chrono::seconds(5);
}

const std::map<std::string, bool (*)(Rank&)>& cases() {
  static const std::map<std::string, bool (*)(Rank&)> kCases{{"all_reduce", allReduce},
                                                             {"types", typesAndOperators},
                                                             {"all_gather", allGather},
                                                             {"reduce_scatter", reduceScatter},
                                                             {"roots", broadcastAndReduce},
                                                             {"all_to_all", allToAll},
                                                             {"split", split},
                                                             {"graph", graph},
                                                             {"abort", abortInTheMiddle},
                                                             {"several", several},
                                                             {"shrink", shrink},
                                                             {"non_blocking", nonBlocking},
                                                             {"again", again},
                                                             {"forked", forked},
                                                             {"registered", registered},
                                                             {"killed", killed},
                                                             {"stopped", stopped},
                                                             {"left", left},
                                                             {"windows", windows},
                                                             {"put_signal", putSignal},
                                                             {"put_signal_graph", putSignalGraph},
                                                             {"put_signal_several", putSignalSeveral},
                                                             {"put_signal_abort", putSignalAbort},
                                                             {"put_signal_killed", putSignalKilled},
                                                             {"kernel_puts", kernelPuts},
                                                             {"steady", steady},
                                                             {"cut_off", cutOff}};
  return kCases;
}

}  // namespace

// A kernel waits for ever for what an error keeps away, so the communicator is asked, too.
bool finish(const Rank& rank, const char* what) {
  constexpr int kNotReady = 600;  // cudaErrorNotReady
  int error = 0;
  for (int state = kNotReady; (state = cuda.streamQuery(rank.stream)) == kNotReady;) {
    expect(nccl.commGetAsyncError(rank.comm, &error), "ncclCommGetAsyncError");
    expect(error, what);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  expect(cuda.streamSynchronize(rank.stream), what);
  expect(nccl.commGetAsyncError(rank.comm, &error), "ncclCommGetAsyncError");
  expect(error, what);
  return true;
}

bool sums(const Rank& rank, size_t count) {
  return allReduceOf(rank, kFloat32, kSum, count, false);
}

bool runCase(const std::string& name, Rank& rank) {
  const auto found = cases().find(name);
  if (found == cases().end()) std::fprintf(stderr, "no case %s\n", name.c_str());
  return found != cases().end() && found->second(rank);
}

std::vector<std::string> caseNames() {
  std::vector<std::string> names;
  for (const auto& [name, run] : cases()) names.push_back(name);
  return names;
}

}  // namespace nccltest
