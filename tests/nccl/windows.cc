// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/cases.h"
#include "tests/nccl/data.h"
#include "tests/nccl/shared.h"

// One-sided operations: symmetric windows, puts with a signal, signals alone and waits for them.
namespace nccltest {

namespace {

bool available() {
  if (nccl.putSignal != nullptr && nccl.signal != nullptr && nccl.waitSignal != nullptr &&
      nccl.commWindowRegister != nullptr && nccl.memAlloc != nullptr)
    return true;
  std::fprintf(stderr, "this NCCL has no ncclPutSignal\n");
  return false;
}

// What a rank puts to another at that place in that turn: no two are alike.
int32_t number(int from, int to, int turn, size_t place) {
  return static_cast<int32_t>(
      (place * 31 + static_cast<size_t>(from) * 7 + static_cast<size_t>(to) * 3 + static_cast<size_t>(turn)) %
      1000003);
}

std::vector<WaitSignal> fromAll(const Rank& rank) {
  std::vector<WaitSignal> waits(static_cast<size_t>(rank.ranks));
  for (int peer = 0; peer < rank.ranks; ++peer) waits[static_cast<size_t>(peer)].peer = peer;
  return waits;
}

void await(const Rank& rank, std::vector<WaitSignal> waits) {
  expect(nccl.waitSignal(static_cast<int>(waits.size()), waits.data(), rank.comm, rank.stream),
         "ncclWaitSignal");
}

// Nobody writes to this rank before every rank has come here: signals alone.
void meetAll(const Rank& rank) {
  expect(nccl.groupStart(), "ncclGroupStart");
  for (int peer = 0; peer < rank.ranks; ++peer)
    expect(nccl.signal(peer, 0, 0, 0, rank.comm, rank.stream), "ncclSignal");
  expect(nccl.groupEnd(), "ncclGroupEnd");
  await(rank, fromAll(rank));
}

// Each rank puts a block of its own to every rank, itself included.
struct AllToAll {
  AllToAll(const Rank& rank, size_t count)
      : ranks(static_cast<size_t>(rank.ranks)),
        block(count),
        source(rank, count * ranks),
        target(rank, count * ranks) {}
  const size_t ranks, block;
  Shared source, target;

  void fill(const Rank& rank, int turn) const {
    std::vector<int32_t> values(block * ranks);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = number(rank.rank, static_cast<int>(i / block), turn, i % block);
    source.write(values);
  }
  void put(const Rank& rank) const {
    expect(nccl.groupStart(), "ncclGroupStart");
    for (size_t peer = 0; peer < ranks; ++peer)
      expect(nccl.putSignal(source.at(peer * block), block, kInt32, static_cast<int>(peer), target.window(),
                            static_cast<size_t>(rank.rank) * block * sizeof(int32_t), 0, 0, 0, rank.comm,
                            rank.stream),
             "ncclPutSignal");
    expect(nccl.groupEnd(), "ncclGroupEnd");
  }
  bool holds(const Rank& rank, int turn) const {
    const auto values = target.read();
    for (size_t i = 0; i < values.size(); ++i) {
      const int32_t wanted = number(static_cast<int>(i / block), rank.rank, turn, i % block);
      if (values[i] == wanted) continue;
      std::fprintf(stderr, "rank %d, turn %d: number %zu from rank %zu is %d, not %d\n", rank.rank, turn,
                   i % block, i / block, values[i], wanted);
      return false;
    }
    return true;
  }
  void leave() {
    source.leave();
    target.leave();
  }
};

bool turns(const Rank& rank, const AllToAll& all, int count) {
  for (int turn = 0; turn < count; ++turn) {
    all.fill(rank, turn);
    all.put(rank);
    await(rank, fromAll(rank));
    finish(rank, "ncclPutSignal");
    if (!all.holds(rank, turn)) return false;
    meetAll(rank);
    finish(rank, "ncclSignal");
  }
  return true;
}

// How long until the communicator is gone.
bool abortsSoon(Rank& rank, AllToAll& all) {
  const auto begin = std::chrono::steady_clock::now();
  expect(nccl.commAbort(rank.comm), "ncclCommAbort");
  rank.comm = nullptr;
  all.leave();
  const auto took = std::chrono::steady_clock::now() - begin;
  if (took > std::chrono::seconds(5)) std::fprintf(stderr, "ncclCommAbort took more than 5 s\n");
  return took <= std::chrono::seconds(5);
}

}  // namespace

// Windows of several sizes at once, given up in another order than they came, and new ones afterwards.
bool windows(Rank& rank) {
  if (!available()) return false;
  for (int round = 0; round < 3; ++round) {
    auto small = std::make_unique<AllToAll>(rank, 3);
    auto large = std::make_unique<AllToAll>(rank, 300'000);
    if (!turns(rank, *large, 1)) return false;
    small.reset();
    const AllToAll middle(rank, 5'000);
    if (!turns(rank, *large, 1) || !turns(rank, middle, 1)) return false;
    large.reset();
    if (!turns(rank, middle, 2)) return false;
  }
  return sums(rank, 1000);
}

bool putSignal(Rank& rank) {
  if (!available()) return false;
  for (const size_t count :
       {size_t{1}, size_t{12}, size_t{48}, size_t{1'000}, size_t{70'001}, size_t{1'300'000}}) {
    const AllToAll all(rank, count);
    if (!turns(rank, all, count > 100'000 ? 2 : 10)) return false;
  }
  return sums(rank, 1000);
}

// Puts and waits that are captured happen at each launch.
bool putSignalGraph(Rank& rank) {
  if (!available()) return false;
  const AllToAll all(rank, 20'000);
  void *captured = nullptr, *run = nullptr;
  constexpr int kThreadLocal = 1;
  expect(cuda.streamBeginCapture(rank.stream, kThreadLocal), "cudaStreamBeginCapture");
  all.put(rank);
  await(rank, fromAll(rank));
  expect(cuda.streamEndCapture(rank.stream, &captured), "cudaStreamEndCapture");
  expect(cuda.graphInstantiate(&run, captured, 0), "cudaGraphInstantiate");
  bool good = true;
  for (int turn = 0; turn < 5 && good; ++turn) {
    all.fill(rank, turn);
    expect(cuda.graphLaunch(run, rank.stream), "cudaGraphLaunch");
    finish(rank, "graph of ncclPutSignal");
    good = all.holds(rank, turn);
    meetAll(rank);
    finish(rank, "ncclSignal");
  }
  expect(cuda.graphExecDestroy(run), "cudaGraphExecDestroy");
  expect(cuda.graphDestroy(captured), "cudaGraphDestroy");
  return good && turns(rank, all, 1);
}

// Two more communicators, with windows, a context and a stream each, all at work at once.
bool putSignalSeveral(Rank& rank) {
  if (!available()) return false;
  std::vector<Rank> others(3, rank);
  for (size_t i = 1; i < others.size(); ++i) {
    const UniqueId id = agreeOnId(rank);
    expect(nccl.commInitRank(&others[i].comm, rank.ranks, id, rank.rank), "ncclCommInitRank");
    expect(cuda.streamCreate(&others[i].stream), "cudaStreamCreate");
  }
  bool good = true;
  {
    std::vector<std::unique_ptr<AllToAll>> all;
    for (const Rank& other : others) all.push_back(std::make_unique<AllToAll>(other, 9'000));
    for (int turn = 0; turn < 5 && good; ++turn) {
      for (size_t i = 0; i < others.size(); ++i) {
        all[i]->fill(others[i], turn);
        all[i]->put(others[i]);
        await(others[i], fromAll(others[i]));
      }
      for (size_t i = 0; i < others.size(); ++i) {
        finish(others[i], "ncclPutSignal");
        good = good && all[i]->holds(others[i], turn);
        meetAll(others[i]);
      }
      for (const Rank& other : others) finish(other, "ncclSignal");
    }
  }
  for (size_t i = 1; i < others.size(); ++i) {
    expect(nccl.commDestroy(others[i].comm), "ncclCommDestroy");
    expect(cuda.streamDestroy(others[i].stream), "cudaStreamDestroy");
  }
  return good && sums(rank, 1000);
}

// Rank 0 neither puts nor waits, and all abort. Nothing waits for a signal that never comes: NCCL 2.30.7 does
// not return from ncclCommAbort then, as it waits for the stream.
bool putSignalAbort(Rank& rank) {
  if (!available()) return false;
  AllToAll all(rank, 100'000);
  if (!turns(rank, all, 1)) return false;
  if (rank.rank != 0) all.put(rank);
  if (rank.rank == 0) letOthersFinish();
  return abortsSoon(rank, all);
}

// Rank 1 is killed; the others wait for its signal. NCCL tells a program neither what its proxy was told, nor
// that the stream will wait for ever: the plugin's line says it (check_nccl.py looks for it), and the process
// ends.
bool putSignalKilled(Rank& rank) {
  if (!available()) return false;
  const AllToAll all(rank, 1'000);
  if (!turns(rank, all, 1) || !sums(rank, 1000)) return false;
  if (rank.rank == 1) letOthersFinish();
  if (rank.rank == 1) (void)raise(SIGKILL);
  await(rank, fromAll(rank));
  std::this_thread::sleep_for(std::chrono::seconds(4));
  std::printf("rank %d of %d: put_signal_killed is right\n", rank.rank, rank.ranks);
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace nccltest
