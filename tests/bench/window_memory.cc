// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <memory>
#include <string>
#include <vector>

#include "src/rma/team.h"
#include "tests/bench/must.h"
#include "tests/coll/ranks.h"
#include "tests/support/catch.h"

// usage: window-memory
//
// The memory that a rank keeps for windows of one-sided operations: the heap in use (mallinfo2) of that many
// ranks in one process, over a network in its memory, when they are connected, and when each has registered
// its windows. Of each step, what it adds for one rank, for one window and one other rank, and what that is
// for 1,024 ranks with 16 windows.
using namespace weft;
using namespace weft::bench;
using namespace weft::test;

namespace {

constexpr size_t kBytes = 64 << 10;
constexpr double kManyRanks = 1024, kManyWindows = 16;

size_t inUse() {
  ::malloc_trim(0);
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

struct Rank {
  std::unique_ptr<rma::Team> team;
  std::vector<std::byte> bytes;  // of all its windows
  std::vector<rma::Window*> windows;
};

void registerAll(const Ranks& network, std::vector<Rank>& ranks, size_t windows) {
  network.each([&](int number) {
    Rank& rank = ranks[static_cast<size_t>(number)];
    for (size_t i = 0; i < windows; i++) {
      MemoryDesc desc;
      desc.address = rank.bytes.data() + i * kBytes;
      desc.length = kBytes;
      rank.windows.push_back(must(rank.team->registerMemory(desc, false)));
    }
  });
}

void show(const char* step, size_t before, size_t after, double ranks, double parts) {
  const double each = static_cast<double>(after > before ? after - before : 0) / ranks;
  std::printf("%-24s %12zu %12.0f", step, after, each);
  if (parts > 0)
    std::printf(" %16.0f %20.1f", each / parts, each / parts * (kManyRanks - 1) * kManyWindows / (1 << 20));
  std::printf("\n");
}

}  // namespace

TEST_CASE("the memory of windows") {
  const int count = GENERATE(8, 24);
  constexpr int windows = 16;
  Ranks network(count);
  std::vector<Rank> ranks(static_cast<size_t>(count));
  for (Rank& rank : ranks) rank.bytes.resize(static_cast<size_t>(windows) * kBytes);
  const size_t begin = inUse();
  network.each([&](int number) {
    ranks[static_cast<size_t>(number)].team = must(rma::Team::open(network.meshOptions(number)));
  });
  const double all = count, parts = static_cast<double>(count - 1) * windows;
  std::printf("%d ranks, %d windows of %zu bytes\n%-24s %12s %12s %16s %20s\n", count, windows, kBytes,
              "bytes of the heap", "in use", "more a rank", "window and peer", "1024 x 16, MiB");
  const size_t connected = inUse();
  show("connected", begin, connected, all, 0);
  registerAll(network, ranks, static_cast<size_t>(windows));
  show("registered", connected, inUse(), all, parts);
  network.each([&](int number) {
    ranks[static_cast<size_t>(number)].team->close();
    ranks[static_cast<size_t>(number)].team.reset();
  });
}
