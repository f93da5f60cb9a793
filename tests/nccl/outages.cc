// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/nccl/cases.h"
#include "tests/nccl/data.h"

// Networks that are cut while data is under way: by tests/nccl/check_outages.py, which waits for "under way".
namespace nccltest {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kCount = 300000;

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void sayUnderWay(const Rank& rank) {
  std::printf("rank %d: under way\n", rank.rank);
  std::fflush(stdout);
}

// One all_reduce. The communicator's error, or 0; kInProgress: still at it when the patience ended.
int reduceOnce(const Rank& rank, const Buffer& in, Clock::time_point until) {
  constexpr int kNotReady = 600;  // cudaErrorNotReady
  int error = nccl.allReduce(in.at(0), in.at(0), kCount, kFloat32, kMax, rank.comm, rank.stream);
  while (error == 0 && cuda.streamQuery(rank.stream) == kNotReady) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    error = errorOf(rank.comm);
    if (error == 0 && Clock::now() > until) return kInProgress;
  }
  return error;
}

}  // namespace

// Some seconds of traffic, all of it right.
bool steady(Rank& rank) {
  constexpr int kTurns = 120;
  sayUnderWay(rank);
  const auto begin = Clock::now();
  double longest = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto now = Clock::now();
    if (!sums(rank, kCount)) return false;
    longest = std::max(longest, secondsSince(now));
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }
  std::printf("rank %d: %.1f s of traffic, stood still for %.1f s at most\n", rank.rank, secondsSince(begin),
              longest);
  return true;
}

// Traffic until the communicator has an error, which has to come and to be named. The communicator is gone
// then.
bool cutOff(Rank& rank) {
  Buffer in(kFloat32, kCount);
  in.fill([](size_t) { return 1.0; });
  sayUnderWay(rank);
  const auto begin = Clock::now(), until = begin + std::chrono::seconds(90);
  int error = 0;
  auto last = begin;
  while (error == 0 && Clock::now() < until) {
    last = Clock::now();
    error = reduceOnce(rank, in, until);
  }
  const double told = secondsSince(last);
  const std::string words = nccl.getLastError(rank.comm);
  const auto aborting = Clock::now();
  expect(nccl.commAbort(rank.comm), "ncclCommAbort");
  rank.comm = nullptr;
  std::printf("rank %d: after %.1f s error %d, last error \"%s\", abort took %.1f s\n", rank.rank, told,
              error, words.c_str(), secondsSince(aborting));
  return error != 0 && error != kInProgress && words.size() > 20 && secondsSince(aborting) <= 5;
}

}  // namespace nccltest
