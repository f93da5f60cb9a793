// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/nccl/cases.h"
#include "tests/nccl/data.h"

// What communicators live through beside collectives.
namespace nccltest {

namespace {

// Elements of the collectives before and after a rank is lost: with one of another size NCCL may choose other
// connections, and waits without an end for the lost rank to make them.
constexpr size_t kLossCount = 100000;

bool has(const void* function, const char* name) {
  if (function == nullptr) std::fprintf(stderr, "this NCCL has no %s\n", name);
  return function != nullptr;
}

template <class Function>
bool has(Function* function, const char* name) {
  return has(reinterpret_cast<const void*>(function), name);
}

// What a non-blocking call began, until it is done.
void settle(Comm comm, int result, const char* what) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (result == kInProgress) {
    expect(std::chrono::steady_clock::now() < until ? 0 : kInProgress, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    expect(nccl.commGetAsyncError(comm, &result), "ncclCommGetAsyncError");
  }
  expect(result, what);
}

// The next collective after another rank was lost: how long until NCCL says so, what it says, and how long
// the abort takes. What it says has one of the wanted parts. The communicator is gone then.
bool loses(Rank& rank, std::initializer_list<const char*> wanted, std::chrono::seconds patience) {
  Buffer in(kFloat32, kLossCount), out(kFloat32, kLossCount);
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  int error = 0;
  for (int turn = 0; turn < 3; ++turn) {  // what was under way may still end well
    if (error == 0)
      error = nccl.allReduce(in.at(0), out.at(0), kLossCount, kFloat32, kSum, rank.comm, rank.stream);
  }
  while (error == 0 && since() < static_cast<double>(patience.count())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    error = errorOf(rank.comm);
  }
  const double told = since();
  const std::string words = nccl.getLastError(rank.comm);
  expect(nccl.commAbort(rank.comm), "ncclCommAbort");
  rank.comm = nullptr;
  const double aborted = since() - told;
  std::printf("rank %d: after %.1f s error %d, last error \"%s\", abort took %.1f s\n", rank.rank, told,
              error, words.c_str(), aborted);
  const bool named = std::any_of(wanted.begin(), wanted.end(),
                                 [&](const char* part) { return words.find(part) != std::string::npos; });
  return error != 0 && named && aborted <= 5;
}

// A child that ends at once, as one that starts another program does.
bool childEnds() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

// Rank 0 makes the unique id of another communicator, and all learn it by the one they have.
UniqueId agreeOnId(const Rank& rank) {
  UniqueId id{};
  if (rank.rank == 0) expect(nccl.getUniqueId(&id), "ncclGetUniqueId");
  Buffer bytes(kInt8, sizeof id);
  expect(cuda.memcpy(bytes.at(0), &id, sizeof id, kDefaultCopy), "cudaMemcpy");
  expect(nccl.broadcast(bytes.at(0), bytes.at(0), sizeof id, kInt8, 0, rank.comm, rank.stream),
         "ncclBroadcast");
  finish(rank, "ncclBroadcast");
  expect(cuda.memcpy(&id, bytes.at(0), sizeof id, kDefaultCopy), "cudaMemcpy");
  return id;
}

void letOthersFinish() {
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

// What is heard first: that its process is gone, or that a connection to it broke; of a network that reduces,
// which rank it was.
bool killed(Rank& rank) {
  if (!sums(rank, kLossCount)) return false;
  if (rank.rank == 1) letOthersFinish();
  if (rank.rank == 1) (void)raise(SIGKILL);
  return loses(rank, {"ended: ", "rank 1 failed: ", "rank 1 left the group or failed"},
               std::chrono::seconds(60));
}

// With a WEFT_PEER_TIMEOUT of seconds.
bool stopped(Rank& rank) {
  if (!sums(rank, kLossCount)) return false;
  if (rank.rank == 1) letOthersFinish();
  if (rank.rank == 1) (void)raise(SIGSTOP);
  return loses(rank, {"is gone"}, std::chrono::seconds(60));
}

// Rank 1 gives up in the middle, in order.
bool left(Rank& rank) {
  if (!sums(rank, kLossCount)) return false;
  if (rank.rank != 1)
    return loses(rank, {"closed the connection", "rank 1 left the group"}, std::chrono::seconds(60));
  letOthersFinish();
  expect(nccl.commAbort(rank.comm), "ncclCommAbort");
  rank.comm = nullptr;
  return true;
}

// Three communicators and the first one at once, each with a stream of its own.
bool several(Rank& rank) {
  constexpr size_t kCount = 200000;
  Rank others[3];
  for (Rank& other : others) {
    const UniqueId id = agreeOnId(rank);
    other = rank;
    expect(nccl.commInitRank(&other.comm, rank.ranks, id, rank.rank), "ncclCommInitRank");
    expect(cuda.streamCreate(&other.stream), "cudaStreamCreate");
  }
  bool good = true;
  {
    Buffer in(kFloat32, kCount), out0(kFloat32, kCount), out1(kFloat32, kCount), out2(kFloat32, kCount);
    Buffer* const outs[] = {&out0, &out1, &out2};
    in.fill([&](size_t i) { return given(rank.rank, i); });
    for (int turn = 0; turn < 3; ++turn) {
      for (size_t i = 0; i < 3; ++i)
        expect(nccl.allReduce(in.at(0), outs[i]->at(0), kCount, kFloat32, kSum, others[i].comm,
                              others[i].stream),
               "ncclAllReduce");
    }
    for (size_t i = 0; i < 3; ++i) {
      finish(others[i], "ncclAllReduce");
      good = good && outs[i]->holds([&](size_t k) { return reduced(kSum, rank.ranks, k); }, "several");
    }
  }
  for (const Rank& other : others) {
    expect(nccl.commDestroy(other.comm), "ncclCommDestroy");
    expect(cuda.streamDestroy(other.stream), "cudaStreamDestroy");
  }
  return good && sums(rank, 1000);
}

// The last rank is left out.
bool shrink(Rank& rank) {
  if (!has(nccl.commShrink, "ncclCommShrink")) return false;
  int leftOut = rank.ranks - 1;
  bool good = true;
  if (rank.rank != leftOut) {
    Rank part = rank;
    expect(nccl.commShrink(rank.comm, &leftOut, 1, &part.comm, nullptr, 0), "ncclCommShrink");
    expect(nccl.commCount(part.comm, &part.ranks), "ncclCommCount");
    expect(nccl.commUserRank(part.comm, &part.rank), "ncclCommUserRank");
    good = part.ranks == rank.ranks - 1 && sums(part, 5000);
    expect(nccl.commDestroy(part.comm), "ncclCommDestroy");
  }
  return sums(rank, 1000) && good;
}

bool nonBlocking(Rank& rank) {
  if (!has(nccl.commInitRankConfig, "ncclCommInitRankConfig") || !has(nccl.commFinalize, "ncclCommFinalize"))
    return false;
  const UniqueId id = agreeOnId(rank);
  Rank other = rank;
  CommConfig config;
  config.blocking = 0;
  const int begun = nccl.commInitRankConfig(&other.comm, rank.ranks, id, rank.rank, &config);
  settle(other.comm, begun, "ncclCommInitRankConfig");
  constexpr size_t kCount = 70000;
  Buffer in(kFloat32, kCount), out(kFloat32, kCount);
  in.fill([&](size_t i) { return given(rank.rank, i); });
  settle(other.comm, nccl.allReduce(in.at(0), out.at(0), kCount, kFloat32, kSum, other.comm, other.stream),
         "ncclAllReduce");
  finish(other, "ncclAllReduce");
  settle(other.comm, nccl.commFinalize(other.comm), "ncclCommFinalize");
  expect(nccl.commDestroy(other.comm), "ncclCommDestroy");
  return out.holds([&](size_t i) { return reduced(kSum, rank.ranks, i); }, "non_blocking");
}

// The last communicator of the process goes, and another one comes.
bool again(Rank& rank) {
  for (int turn = 0; turn < 3; ++turn) {
    const UniqueId id = agreeOnId(rank);
    if (nccl.commFinalize != nullptr) expect(nccl.commFinalize(rank.comm), "ncclCommFinalize");
    expect(nccl.commDestroy(rank.comm), "ncclCommDestroy");
    rank.comm = nullptr;
    expect(nccl.commInitRank(&rank.comm, rank.ranks, id, rank.rank), "ncclCommInitRank");
    if (!sums(rank, 5000)) return false;
  }
  return true;
}

bool forked(Rank& rank) {
  bool good = childEnds() && sums(rank, 5000);
  // Once more with data on its way.
  constexpr size_t kCount = 500000;
  Buffer in(kFloat32, kCount), out(kFloat32, kCount);
  in.fill([&](size_t i) { return given(rank.rank, i); });
  expect(nccl.allReduce(in.at(0), out.at(0), kCount, kFloat32, kSum, rank.comm, rank.stream),
         "ncclAllReduce");
  good = childEnds() && good;
  finish(rank, "ncclAllReduce");
  return good && out.holds([&](size_t i) { return reduced(kSum, rank.ranks, i); }, "forked");
}

// Buffers of the user that NCCL may hand to the network as they are.
bool registered(Rank& rank) {
  if (!has(nccl.commRegister, "ncclCommRegister") || !has(nccl.commDeregister, "ncclCommDeregister"))
    return false;
  constexpr size_t kCount = 400000;
  Buffer in(kFloat32, kCount), out(kFloat32, kCount);
  in.fill([&](size_t i) { return given(rank.rank, i); });
  void *one = nullptr, *other = nullptr;
  expect(nccl.commRegister(rank.comm, in.at(0), kCount * 4, &one), "ncclCommRegister");
  expect(nccl.commRegister(rank.comm, out.at(0), kCount * 4, &other), "ncclCommRegister");
  bool good = true;
  for (int turn = 0; turn < 3 && good; ++turn) {
    expect(nccl.groupStart(), "ncclGroupStart");
    expect(nccl.send(in.at(0), kCount, kFloat32, (rank.rank + 1) % rank.ranks, rank.comm, rank.stream),
           "ncclSend");
    const int from = (rank.rank + rank.ranks - 1) % rank.ranks;
    expect(nccl.recv(out.at(0), kCount, kFloat32, from, rank.comm, rank.stream), "ncclRecv");
    expect(nccl.groupEnd(), "ncclGroupEnd");
    finish(rank, "registered send and receive");
    good = out.holds([&](size_t i) { return given(from, i); }, "registered");
  }
  expect(nccl.commDeregister(rank.comm, one), "ncclCommDeregister");
  expect(nccl.commDeregister(rank.comm, other), "ncclCommDeregister");
  return good && sums(rank, 1000);
}

}  // namespace nccltest
