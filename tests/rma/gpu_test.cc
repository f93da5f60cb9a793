// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <dlfcn.h>

#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "providers/tcp/transport.h"
#include "src/mem/gpu/abi.h"
#include "tests/coll/gpu_memory.h"
#include "tests/rma/teams.h"
#include "tests/support/catch.h"

// Windows in the memory of a GPU: a stand-in, whose memory a test may read. One fabric reaches it, and must
// be flushed before the GPU sees what a card wrote; the other one does not.
using namespace weft;
using namespace weft::rma;
using namespace weft::test;

namespace {

using Functions = mem::gpu::Functions;

template <class Function>
Function call(const char* name) {
  static void* const library = dlopen(cudaStandIn().c_str(), RTLD_NOW);
  REQUIRE(library);
  auto found = reinterpret_cast<Function>(dlsym(library, name));
  REQUIRE(found);
  return found;
}

// Three ranks with a window of GPU memory each.
struct GpuTeams {
  static Config config() {
    Config config;
    config.libcuda = cudaStandIn();
    return config;
  }
  explicit GpuTeams(bool reached = true)
      : teams(3, config(), [this, reached](int rank) -> std::unique_ptr<Transport> {
          if (!reached) return tcp::makeTransport(overLoopback());
          auto transport = fault::makeTransport(loop::makeTransport({}));
          controls[static_cast<size_t>(rank)] = transport->control();
          return transport;
        }) {}
  static Config overLoopback() {
    Config config;
    config.socketIfname = "=lo";
    return config;
  }
  std::vector<std::shared_ptr<fault::FaultControl>> controls{3};  // where the fabric reaches it
  Teams teams;
  std::vector<std::pair<std::byte*, size_t>> allocated;

  ~GpuTeams() {
    for (const auto& [data, bytes] : allocated)
      CHECK(call<decltype(Functions::cuMemFree_v2)>("cuMemFree_v2")(reinterpret_cast<uintptr_t>(data)) == 0);
  }
  struct Window {
    std::vector<std::byte*> data;  // by rank
    std::vector<rma::Window*> handle;
    uint64_t word(int rank, size_t offset) const {
      uint64_t value = 0;
      std::memcpy(&value, data[static_cast<size_t>(rank)] + offset, sizeof value);
      return value;
    }
  };
  Window add(size_t bytes, bool neverReset) {
    Window made{std::vector<std::byte*>(3), std::vector<rma::Window*>(3)};
    for (std::byte*& data : made.data) {
      mem::gpu::Address address = 0;
      REQUIRE(call<decltype(Functions::cuMemAlloc_v2)>("cuMemAlloc_v2")(&address, bytes) == 0);
      data = reinterpret_cast<std::byte*>(address);
      allocated.emplace_back(data, bytes);
    }
    std::vector<std::string> failures(3);
    teams.ranks().each([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      MemoryDesc desc;
      desc.address = made.data[r];
      desc.length = bytes;
      desc.kind = MemoryKind::cuda;
      auto registered = teams.team(rank).registerMemory(desc, neverReset);
      if (registered)
        made.handle[r] = *registered;
      else
        failures[r] = registered.error().message();
    });
    for (const std::string& failure : failures) REQUIRE(failure == "");
    return made;
  }
};

}  // namespace

TEST_CASE("one-sided: puts, signals and gets between windows of a GPU") {
  const bool reached = GENERATE(true, false);
  INFO((reached ? "by the fabric" : "through host memory"));
  GpuTeams gpus(reached);
  constexpr size_t kBytes = size_t{5} << 20;
  const auto data = gpus.add(kBytes, false);
  CHECK(data.handle[1]->staged != reached);
  const auto counted = gpus.add(64, true), shared = gpus.add(64, false);
  for (size_t i = 0; i < kBytes; i++) data.data[0][i] = static_cast<std::byte>(i * 7 % 251);
  uint64_t sum = 0;
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{100}, uint64_t{70'000}, uint64_t{kBytes}}) {
    INFO(bytes << " bytes");
    for (const auto* signals : {&counted, &shared}) {
      std::memset(data.data[1], 0, kBytes);
      Put put;
      put.rank = 1;
      put.bytes = bytes;
      put.source = put.target = data.handle[0];
      put.signals = true;
      put.signal = signals->handle[0];
      put.signalOffset = 16;
      put.addend = 5;
      Request* request = begun(gpus.teams.team(0).put(put));
      REQUIRE(gpus.teams.until([&] { return signals->word(1, 16) == sum + 5; }));
      CHECK(std::memcmp(data.data[0], data.data[1], bytes) == 0);
      gpus.teams.finish(0, request);
    }
    sum += 5;
    Get get;
    get.rank = 0;
    get.bytes = bytes;
    get.remote = get.local = data.handle[2];
    std::memset(data.data[2], 0, kBytes);
    gpus.teams.finish(2, begun(gpus.teams.team(2).get(get)));
    CHECK(std::memcmp(data.data[0], data.data[2], bytes) == 0);
  }
}

// A flush shows the GPU everything that was written before it.
TEST_CASE("one-sided: puts that are here together are flushed once, and their signals added at once") {
  GpuTeams gpus;
  const auto data = gpus.add(16384, false), words = gpus.add(64, false);
  std::memset(data.data[0], 7, 16384);
  fault::FaultRule counts;  // and hits nothing
  counts.kind = fault::FaultKind::delay;
  counts.op = fault::FaultOp::read;
  counts.nth = uint64_t{1} << 40;
  const auto flushes = gpus.controls[1]->add(counts);
  constexpr uint64_t kPuts = 4;
  for (uint64_t i = 0; i < kPuts; i++) {
    Put put;
    put.rank = 1;
    put.bytes = 4096;
    put.sourceOffset = put.targetOffset = i * 4096;
    put.source = put.target = data.handle[0];
    put.signals = true;
    put.signal = words.handle[0];
    put.addend = 3;
    (void)begun(gpus.teams.team(0).put(put));
    REQUIRE(gpus.teams.team(0).progress());
  }
  REQUIRE(gpus.teams.until([&] { return words.word(1, 0) == 3 * kPuts; }));
  CHECK(gpus.teams.team(1).counters().signals == kPuts);
  CHECK(std::memcmp(data.data[0], data.data[1], 16384) == 0);
  CHECK(flushes->counts().seen >= 1);
  CHECK(flushes->counts().seen <= 2);
}

// Whoever resets such a word, as the user of a window may, is not overwritten by an older value.
TEST_CASE("one-sided: a word of a GPU that its user resets counts on from there") {
  GpuTeams gpus;
  const auto words = gpus.add(64, false);
  for (const uint64_t expected : {uint64_t{1}, uint64_t{101}}) {
    Put put;
    put.rank = 1;
    put.signals = true;
    put.signal = words.handle[0];
    put.addend = 1;
    gpus.teams.finish(0, begun(gpus.teams.team(0).put(put)));
    REQUIRE(gpus.teams.until([&] { return words.word(1, 0) == expected; }));
    const uint64_t reset = 100;
    std::memcpy(words.data[1], &reset, sizeof reset);
  }
}

TEST_CASE("one-sided: a rank reaches its own memory of a GPU, also to flush it") {
  GpuTeams gpus;
  const auto data = gpus.add(4096, false);
  const size_t host = gpus.teams.addWindow(4096);
  std::memset(gpus.teams.bytes(host, 0).data(), 3, 64);
  Put put;
  put.bytes = 64;
  put.source = gpus.teams.window(host, 0);
  put.target = data.handle[0];
  gpus.teams.finish(0, begun(gpus.teams.team(0).put(put)));
  CHECK(data.data[0][63] == std::byte{3});
  put.source = data.handle[0];
  put.target = gpus.teams.window(host, 0);
  put.targetOffset = 1000;
  gpus.teams.finish(0, begun(gpus.teams.team(0).put(put)));
  CHECK(gpus.teams.bytes(host, 0)[1063] == std::byte{3});
  put.target = data.handle[0];
  put.targetOffset = 0;
  Request* flush = begun(gpus.teams.team(0).put(put));
  bool done = false;
  CHECK(gpus.teams.team(0).test(flush, &done));
  CHECK(done);
}

TEST_CASE("one-sided: memory that is none of a GPU is not registered as one") {
  Teams teams(1, GpuTeams::config());
  uint64_t word = 0;
  MemoryDesc desc;
  desc.address = &word;
  desc.length = sizeof word;
  desc.kind = MemoryKind::cuda;
  const auto refused = teams.team(0).registerMemory(desc, false);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("as memory of a GPU") != std::string::npos);
}
