// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <malloc.h>
#include <string>
#include <thread>
#include <unistd.h>

#include "tests/bench/must.h"
#include "tools/netdriver/comm.h"
#include "tools/netdriver/library.h"

// usage: registration-growth PLUGIN.so CYCLES RUNS
//
// Whether registering and deregistering leaves memory behind: CYCLES pairs of regMr and deregMr, RUNS times
// each, on a send and on a receive comm of one process, of one range and of ranges that nobody had before. A
// line for each run: by how many bytes the heap in use (mallinfo2, after malloc_trim) is larger than before
// it, at once and after a second in which nothing is called, and the resident memory after that second. What
// is there at once and not a second later was waiting for other threads.
using namespace weft;
using namespace weft::netdriver;

namespace {

using bench::die;
using bench::must;

constexpr size_t kRangeBytes = 8192;
constexpr size_t kStep = 2 * kRangeBytes;  // no range lies in another's pages
constexpr size_t kMostCycles = 1'000'000;
constexpr size_t kMostRuns = 100;
constexpr Milliseconds kConnectTimeout{100'000};

struct Memory {
  long heap = 0;
  long resident = 0;
};

Memory memoryNow() {
  malloc_trim(0);
  const auto info = mallinfo2();
  long whole = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> whole >> resident;
  return {static_cast<long>(info.uordblks + info.hblkhd), resident * sysconf(_SC_PAGESIZE)};
}

void cycle(const Comm& comm, std::byte* range) {
  void* handle = nullptr;
  if (comm.net().regMr(comm.raw(), range, kRangeBytes, &handle) != ncclSuccess) die("regMr failed");
  if (comm.net().deregMr(comm.raw(), handle) != ncclSuccess) die("deregMr failed");
}

// `step` 0: the same range each time.
void measure(const char* name, const Comm& comm, std::byte* ranges, size_t step, size_t cycles, size_t run) {
  const Memory before = memoryNow();
  for (size_t i = 0; i < cycles; i++) cycle(comm, ranges + i * step);
  const Memory atOnce = memoryNow();
  std::this_thread::sleep_for(Milliseconds(1000));
  const Memory after = memoryNow();
  std::printf("%-24s run %2zu   heap %+9ld B at once, %+9ld B later, %+8.2f a cycle   resident %+9ld B\n",
              name, run, atOnce.heap - before.heap, after.heap - before.heap,
              static_cast<double>(after.heap - before.heap) / static_cast<double>(cycles),
              after.resident - before.resident);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t cycles = argc == 4 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const size_t runs = argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 0;
  if (cycles < 1 || cycles > kMostCycles || runs < 1 || runs > kMostRuns) {
    std::fprintf(stderr, "usage: registration-growth PLUGIN.so CYCLES RUNS, up to 1000000 and 100\n");
    return 2;
  }
  const auto library = must(Library::open(argv[1]));
  const Context context = must(Context::create(library->net(), 1));
  Listener listener = must(listen(context, 0));
  const Handle peer = listener.handle;
  const Ends ends = must(connectBoth(context, 0, peer, std::move(listener), kConnectTimeout));
  for (size_t run = 1; run <= runs; run++) {
    const HostBuffer fresh = must(HostBuffer::create(cycles * kStep));
    measure("send, the same range", ends.send, fresh.data(), 0, cycles, run);
    measure("receive, the same range", ends.recv, fresh.data(), 0, cycles, run);
    measure("send, new ranges", ends.send, fresh.data(), kStep, cycles, run);
    measure("receive, new ranges", ends.recv, fresh.data(), kStep, cycles, run);
  }
  return 0;
}
