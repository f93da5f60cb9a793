// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "tests/nccl/api.h"
#include "tests/nccl/meet.h"
#include "tests/nccl/operations.h"

// nccl-time NCCL RANKS RANK DEVICE ID_FILE: one rank that does what it is told on stdin, a line each, and
// answers on stdout. All ranks have to be told the same. Its first line is
//   ready VERSION INIT FIRST    NCCL's version, microseconds of ncclCommInitRank, and from its begin to a
//   first result
// Then OPERATION BYTES COUNT is done COUNT times, one behind the other:
//   done MICROSECONDS           of all of them
// and check OPERATION BYTES is done once, and every element compared:
//   right                       otherwise the program ends with a line on stderr
// The end of stdin ends it. Names and sizes: operations.h.
namespace {

using namespace nccltest;
using Clock = std::chrono::steady_clock;

double microsecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void await(const Rank& rank, const char* what) {
  expect(cuda.streamSynchronize(rank.stream), what);
  int error = 0;
  expect(nccl.commGetAsyncError(rank.comm, &error), "ncclCommGetAsyncError");
  expect(error, what);
}

// The one that is at work; another one takes its place when name or size change.
class Desk {
 public:
  explicit Desk(const Rank& rank) : rank_(rank), together_(makeOperation("all_reduce", rank, 1)) {}

  Operation* take(const std::string& name, size_t bytes) {
    if (operation_ != nullptr && name == name_ && bytes == bytes_) return operation_.get();
    operation_.reset();
    operation_ = makeOperation(name, rank_, bytes);
    name_ = name;
    bytes_ = bytes;
    return operation_.get();
  }
  // Nobody goes on before all have come.
  void meetOthers() {
    together_->enqueue();
    await(rank_, "all_reduce of one element");
  }

 private:
  const Rank& rank_;
  const std::unique_ptr<Operation> together_;
  std::unique_ptr<Operation> operation_;
  std::string name_;
  size_t bytes_ = 0;
};

bool check(Desk& desk, const Rank& rank, const std::string& name, size_t bytes) {
  Operation* const operation = desk.take(name, bytes);
  if (operation == nullptr) return false;
  operation->enqueue();
  await(rank, name.c_str());
  if (!operation->isRight()) return false;
  std::puts("right");
  return true;
}

bool time(Desk& desk, const Rank& rank, const std::string& name, size_t bytes, int count) {
  Operation* const operation = desk.take(name, bytes);
  if (operation == nullptr || count < 1) return false;
  desk.meetOthers();
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) operation->enqueue();
  await(rank, name.c_str());
  std::printf("done %.1f\n", microsecondsSince(begin));
  return true;
}

// False: a line that is none, or a result that is wrong.
bool obey(Desk& desk, const Rank& rank, const std::string& line) {
  std::istringstream words(line);
  std::string name;
  size_t bytes = 0;
  int count = 0;
  words >> name;
  const bool checks = name == "check";
  if (checks) words >> name;
  words >> bytes;
  if (!checks) words >> count;
  const bool done =
      !words.fail() && (checks ? check(desk, rank, name, bytes) : time(desk, rank, name, bytes, count));
  if (!done)
    std::fprintf(stderr, "rank %d: \"%s\" is not understood, or its result is wrong\n", rank.rank,
                 line.c_str());
  std::fflush(stdout);
  return done;
}

int work(Rank& rank, Clock::time_point begin) {
  const double initialised = microsecondsSince(begin);
  Desk desk(rank);
  desk.meetOthers();
  int version = 0;
  expect(nccl.getVersion(&version), "ncclGetVersion");
  std::printf("ready %d %.1f %.1f\n", version, initialised, microsecondsSince(begin));
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    if (!obey(desk, rank, line)) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "nccl-time NCCL RANKS RANK DEVICE ID_FILE\n");
    return 2;
  }
  std::string why;
  if (!openNccl(std::strcmp(argv[1], "-") == 0 ? "" : argv[1], why)) {
    std::fprintf(stderr, "NCCL cannot be used: %s\n", why.c_str());
    return 1;
  }
  Rank rank;
  rank.ranks = std::atoi(argv[2]);
  rank.rank = std::atoi(argv[3]);
  expect(cuda.setDevice(std::atoi(argv[4])), "cudaSetDevice");
  expect(cuda.streamCreate(&rank.stream), "cudaStreamCreate");
  const UniqueId id = meet(rank.rank == 0, argv[5]);
  const auto begin = Clock::now();
  expect(nccl.commInitRank(&rank.comm, rank.ranks, id, rank.rank), "ncclCommInitRank");
  const int status = work(rank, begin);
  if (status != 0) std::_Exit(status);  // others may still wait for this rank, so nothing is ended in order
  expect(nccl.commDestroy(rank.comm), "ncclCommDestroy");
  expect(cuda.streamDestroy(rank.stream), "cudaStreamDestroy");
  return 0;
}
