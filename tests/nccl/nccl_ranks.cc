// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/api.h"
#include "tests/nccl/cases.h"
#include "tests/nccl/meet.h"

// nccl-ranks NCCL RANKS FIRST COUNT ID_FILE CASE...: ranks FIRST to FIRST + COUNT - 1 of RANKS, each in a
// thread with a GPU of its own, run the cases one after the other. Rank 0 writes the unique id to ID_FILE.
// NCCL is a file, or "-" for the loader's path.
namespace {

using namespace nccltest;

bool runRank(int rank, int ranks, int device, const UniqueId& id, const std::vector<std::string>& names) {
  Rank self;
  self.rank = rank;
  self.ranks = ranks;
  expect(cuda.setDevice(device), "cudaSetDevice");
  expect(cuda.streamCreate(&self.stream), "cudaStreamCreate");
  expect(nccl.commInitRank(&self.comm, ranks, id, rank), "ncclCommInitRank");
  bool good = true;
  for (const auto& name : names) {
    good = good && runCase(name, self);
    if (good) std::printf("rank %d of %d: %s is right\n", rank, ranks, name.c_str());
    std::fflush(stdout);
  }
  if (self.comm != nullptr) expect(nccl.commDestroy(self.comm), "ncclCommDestroy");
  expect(cuda.streamDestroy(self.stream), "cudaStreamDestroy");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kSkip = 77;
  if (argc < 7) {
    std::fprintf(stderr, "nccl-ranks NCCL RANKS FIRST COUNT ID_FILE CASE...\n");
    return 2;
  }
  std::string why;
  if (!openNccl(std::strcmp(argv[1], "-") == 0 ? "" : argv[1], why)) {
    std::fprintf(stderr, "no NCCL: %s; WEFT_NCCL=FILE names one\n", why.c_str());
    return kSkip;
  }
  const int ranks = std::atoi(argv[2]), first = std::atoi(argv[3]), count = std::atoi(argv[4]);
  const UniqueId id = meet(first == 0, argv[5]);
  const std::vector<std::string> names(argv + 6, argv + argc);
  std::vector<char> good(static_cast<size_t>(count), 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back(
        [&, i] { good[static_cast<size_t>(i)] = runRank(first + i, ranks, i, id, names) ? 1 : 0; });
  }
  for (auto& thread : threads) thread.join();
  for (const char each : good) {
    if (each == 0) return 1;
  }
  return 0;
}
