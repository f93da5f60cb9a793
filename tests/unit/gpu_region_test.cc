// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "src/base/random.h"
#include "src/mem/gpu/copies.h"
#include "src/mem/region.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/text.h"

using namespace weft;
using namespace weft::mem;
using weft::test::contains;
using weft::test::FakeCard;
using weft::test::FakeGpu;

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMiB = size_t{1} << 20;
constexpr uintptr_t kBase = uintptr_t{1} << 32;

struct Stage {
  explicit Stage(size_t mostKept = 256, uint64_t mostBytes = uint64_t{1} << 30, bool dmabuf = true) {
    CacheOptions options;
    options.driver = gpu.driver();
    options.path.dmabuf = dmabuf;
    options.path.byAddress = !dmabuf;
    options.mostKept = mostKept;
    options.mostKeptBytes = mostBytes;
    cache = std::make_unique<RegionCache>(std::vector<std::shared_ptr<Device>>{card}, options);
  }

  Result<RegionRef> tryGet(const void* address, size_t length, MemoryKind kind = MemoryKind::cuda,
                           int fd = -1) {
    MemoryDesc desc;
    desc.address = const_cast<void*>(address);
    desc.length = length;
    desc.kind = kind;
    desc.fd = fd;
    return cache->get(desc);
  }
  RegionRef get(const void* address, size_t length) {
    auto region = tryGet(address, length);
    if (!region) FAIL(region.error().message());
    CHECK((*region)->covers(address, length));
    return *region;
  }
  std::string refusal(const void* address, size_t length, MemoryKind kind = MemoryKind::cuda) {
    const auto region = tryGet(address, length, kind);
    return region ? "" : region.error().message();
  }

  FakeGpu gpu;
  std::shared_ptr<FakeCard> card = std::make_shared<FakeCard>();
  std::unique_ptr<RegionCache> cache;
};

const std::byte* at(uintptr_t address) {
  return reinterpret_cast<const std::byte*>(address);
}

}  // namespace

TEST_CASE("an allocation is registered as a whole, and its parts are found in it") {
  Stage stage;
  stage.gpu.allocateAt(kBase, 16 * kMiB, 1);
  const RegionRef part = stage.get(at(kBase + kMiB), 5000);
  CHECK(part->begin() == at(kBase));
  CHECK(part->length() == 16 * kMiB);
  CHECK(part->kind() == MemoryKind::dmabuf);
  CHECK(part->gpu() == 1);
  CHECK(stage.get(at(kBase + 9 * kMiB + 3), kMiB) == part);
  CHECK(stage.card->registered.size() == 1);
  CHECK(stage.cache->counters().hits == 1);
  CHECK(stage.cache->counters().bytes == 16 * kMiB);
}

TEST_CASE("an allocation above the limit is registered in parts") {
  Stage stage(256, 8 * kMiB);
  stage.gpu.allocateAt(kBase, 16 * kMiB);
  const RegionRef part = stage.get(at(kBase + kPage + 10), 100);
  CHECK(part->begin() == at(kBase + kPage));
  CHECK(part->length() == kPage);
  CHECK(stage.get(at(kBase + 10 * kPage), kPage) != part);
}

TEST_CASE("a whole that the card refuses does not keep it from taking the part") {
  Stage stage;
  stage.card->longest = kMiB;
  stage.gpu.allocateAt(kBase, 16 * kMiB);
  CHECK(stage.get(at(kBase + kMiB), kMiB)->length() == kMiB);
  CHECK(contains(stage.refusal(at(kBase), 2 * kMiB), "2097152 bytes at"));
}

TEST_CASE("a card that is full is emptied of what nobody uses, and asked again") {
  Stage stage;
  stage.card->most = 1;
  stage.gpu.allocateAt(kBase, kMiB);
  stage.gpu.allocateAt(kBase + kMiB, 16 * kMiB);
  RegionRef first = stage.get(at(kBase), kPage);
  CHECK(
      contains(stage.refusal(at(kBase + kMiB), kPage), "the table is full"));  // in use: nothing to give back
  first.reset();
  CHECK(stage.get(at(kBase + kMiB), kPage)->length() == 16 * kMiB);  // given back, and tried again
  CHECK(stage.cache->counters().evictions == 1);
  CHECK(stage.card->live() == 1);
}

TEST_CASE("memory freed and allocated anew at its address is another region") {
  Stage stage;
  void* memory = stage.gpu.allocateAt(kBase, kMiB);
  RegionRef first = stage.get(memory, kMiB);
  const uint32_t id = first->id();
  SECTION("after its last user") {
    first.reset();
    CHECK(stage.get(memory, kMiB)->id() == id);  // kept for the next
    stage.gpu.free(memory);
    stage.gpu.allocateAt(kBase, kMiB);
    CHECK(stage.get(memory, kMiB)->id() != id);
    CHECK(stage.card->live() == 1);  // what was freed is not held
    stage.gpu.free(memory);
    stage.cache->dropFreed();
    CHECK(stage.card->live() == 0);
  }
  SECTION("while somebody has it") {
    stage.gpu.free(memory);
    stage.gpu.allocateAt(kBase, 2 * kMiB);
    CHECK(stage.get(memory, kMiB)->id() != id);
    first.reset();
    CHECK(stage.get(memory, 2 * kMiB)->id() != id);
  }
}

TEST_CASE("what nobody uses is bounded, the least recently used going first") {
  Stage stage(2);
  uint32_t ids[4];
  for (uintptr_t i = 0; i < 4; i++) {
    stage.gpu.allocateAt(kBase + i * kMiB, kMiB);
    ids[i] = stage.get(at(kBase + i * kMiB), kPage)->id();
    if (i == 1) CHECK(stage.get(at(kBase), kPage)->id() == ids[0]);
  }
  CHECK(stage.card->live() == 2);
  CHECK(stage.get(at(kBase + 3 * kMiB), kPage)->id() == ids[3]);
  CHECK(stage.get(at(kBase + 2 * kMiB), kPage)->id() == ids[2]);
  CHECK(stage.get(at(kBase), kPage)->id() != ids[0]);
  Stage none(0);
  none.gpu.allocateAt(kBase, kMiB);
  none.get(at(kBase), kPage);
  CHECK(none.card->live() == 0);
  Stage few(256, 3 * kMiB);
  for (uintptr_t i = 0; i < 5; i++) {
    few.gpu.allocateAt(kBase + i * kMiB, kMiB);
    few.get(at(kBase + i * kMiB), kPage);
  }
  CHECK(few.card->live() == 3);
}

TEST_CASE("memory mapped of several segments is never widened") {
  Stage stage;
  for (uintptr_t i = 0; i < 3; i++) stage.gpu.allocateAt(kBase + i * 2 * kMiB, 2 * kMiB);
  const RegionRef across = stage.get(at(kBase + kMiB), 2 * kMiB);
  CHECK(across->begin() == at(kBase + kMiB));
  CHECK(across->length() == 2 * kMiB);
  CHECK(stage.get(at(kBase + kMiB), 2 * kMiB) == across);
  // A part that lies in one segment is that segment's.
  CHECK(stage.get(at(kBase + kMiB), kPage)->length() == 2 * kMiB);
  CHECK(stage.get(at(kBase + kMiB), kPage)->begin() == at(kBase));
  // Another segment behind the first one: not the region of before.
  stage.gpu.free(reinterpret_cast<void*>(kBase + 2 * kMiB));
  stage.gpu.allocateAt(kBase + 2 * kMiB, 2 * kMiB);
  CHECK(stage.get(at(kBase + kMiB), 2 * kMiB) != across);
}

TEST_CASE("a region of several segments is kept for its next user, until one of them is freed") {
  Stage stage;
  for (uintptr_t i = 0; i < 2; i++) stage.gpu.allocateAt(kBase + i * 2 * kMiB, 2 * kMiB);
  stage.gpu.allocateAt(kBase + 64 * kMiB, kMiB);
  const uint32_t id = stage.get(at(kBase + kMiB), 2 * kMiB)->id();
  stage.get(at(kBase + 64 * kMiB), kMiB);  // looks for what was freed
  CHECK(stage.get(at(kBase + kMiB), 2 * kMiB)->id() == id);
  CHECK(stage.cache->counters().evictions == 0);
  stage.gpu.free(reinterpret_cast<void*>(kBase + 2 * kMiB));
  stage.cache->dropFreed();
  CHECK(stage.cache->counters().evictions == 1);
  CHECK(stage.card->live() == 1);
}

// An allocation that begins within a page shares it with another one.
TEST_CASE("an allocation that begins behind another one's end in a page is kept as well") {
  Stage stage;
  stage.gpu.allocateAt(kBase, kMiB + 512);
  stage.gpu.allocateAt(kBase + kMiB + 512, kMiB);
  const uint32_t id = stage.get(at(kBase + kMiB + 512), 100)->id();
  stage.cache->dropFreed();
  CHECK(stage.get(at(kBase + kMiB + 512), 100)->id() == id);
}

TEST_CASE("memory that the driver has no number for has a region for as long as it is used, and no longer") {
  Stage stage;
  stage.gpu.numbers = false;
  stage.gpu.allocateAt(kBase, 2 * kMiB);
  RegionRef first = stage.get(at(kBase), kMiB);
  CHECK(first->length() == kMiB);
  CHECK(stage.get(at(kBase), kMiB) == first);
  const uint32_t id = first->id();
  first.reset();
  CHECK(stage.card->live() == 0);
  // Another allocation at the same address, which has no number either.
  stage.gpu.free(reinterpret_cast<void*>(kBase));
  stage.gpu.allocateAt(kBase, 2 * kMiB);
  CHECK(stage.get(at(kBase), kMiB)->id() != id);
  // A range of which one segment has a number.
  stage.gpu.numbers = true;
  stage.gpu.allocateAt(kBase + 2 * kMiB, 2 * kMiB);
  stage.get(at(kBase + kMiB), 2 * kMiB);
  CHECK(stage.card->live() == 0);
}

TEST_CASE("by the older way memory goes by its address") {
  Stage stage(256, uint64_t{1} << 30, false);
  stage.gpu.allocateAt(kBase, kMiB);
  CHECK(stage.get(at(kBase + 5), 10)->kind() == MemoryKind::cuda);
  CHECK(stage.gpu.exported.empty());
}

TEST_CASE("a range that is no GPU memory is refused with the reason") {
  Stage stage;
  stage.gpu.allocateAt(kBase, kMiB);
  stage.gpu.allocateAt(kBase + 4 * kMiB, kMiB, 0, 1);
  stage.gpu.allocateAt(kBase + 8 * kMiB, kMiB, 0, 2, true);
  stage.gpu.allocateAt(kBase + 12 * kMiB, kMiB, 0);
  stage.gpu.allocateAt(kBase + 13 * kMiB, kMiB, 1);
  CHECK(contains(stage.refusal(at(kBase + 2 * kMiB), kPage), "knows no such memory"));
  CHECK(contains(stage.refusal(at(kBase - kPage), 2 * kPage), "knows no such memory"));
  CHECK(contains(stage.refusal(at(kBase + 4 * kMiB), kPage), "register it as host memory"));
  CHECK(contains(stage.refusal(at(kBase + 8 * kMiB), kPage), "managed memory"));
  CHECK(contains(stage.refusal(at(kBase), 2 * kMiB), "ends after 1048576"));
  CHECK(contains(stage.refusal(at(kBase + 12 * kMiB), 2 * kMiB), "GPU 0 ends after"));  // the rest is GPU 1's
  CHECK(contains(stage.refusal(at(kBase), size_t{1} << 40), "ends after"));
  CHECK(contains(stage.refusal(at(kBase), 0), "are not a range"));
  CHECK(contains(stage.refusal(nullptr, kPage), "are not a range"));
  CHECK(contains(stage.refusal(at(kBase), kPage, MemoryKind::host), "are a GPU's"));
  stage.gpu.exportFails = mem::gpu::kInvalidValue;
  CHECK(contains(stage.refusal(at(kBase), kPage), "CUDA_ERROR_OF_A_TEST"));
  CHECK(stage.card->live() == 0);
}

TEST_CASE("a device without a way to GPU memory says why") {
  CacheOptions options;
  options.path.why = "sockets";
  RegionCache cache({std::make_shared<FakeCard>()}, options);
  MemoryDesc desc;
  desc.address = reinterpret_cast<void*>(kBase);
  desc.length = kPage;
  desc.kind = MemoryKind::cuda;
  const auto region = cache.get(desc);
  REQUIRE_FALSE(region);
  CHECK(contains(region.error().message(), "host memory only: sockets"));
}

// NCCL's service threads register and deregister at the same time, and the control thread looks for what was
// freed.
TEST_CASE("threads share a cache") {
  Stage stage(4);
  constexpr uintptr_t kAllocations = 16;
  for (uintptr_t i = 0; i < kAllocations; i++) stage.gpu.allocateAt(kBase + i * kMiB, kMiB);
  std::atomic<bool> wrong{false};
  const auto work = [&](uint64_t seed) {
    SeededRandom random(seed);
    std::vector<RegionRef> held(8);
    for (int step = 0; step < 5000; step++) {
      const uintptr_t address = kBase + random.below(kAllocations) * kMiB + kPage * random.below(200);
      auto region = stage.tryGet(at(address), kPage);
      if (!region || !(*region)->covers(at(address), kPage)) wrong = true;
      if (region) held[random.below(held.size())] = region.take();
      if (step % 64 == 0) stage.cache->dropFreed();
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 3; seed++) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(wrong);
  CHECK(stage.card->live() <= 4);
}

// What NCCL does for N peers: each connection registers its own buffer of three slices and the shared one,
// and users' buffers come and go.
TEST_CASE("of NCCL's registrations nearly all are found again") {
  Stage stage;
  constexpr uintptr_t kPeers = 512;
  stage.gpu.allocateAt(kBase, 32 * kMiB);
  stage.gpu.allocateAt(kBase + 64 * kMiB, 32 * kMiB);
  std::vector<RegionRef> held;
  for (uintptr_t peer = 0; peer < kPeers; peer++) {
    for (const size_t slice : {size_t{0}, 4 * kMiB, 4 * kMiB + 512 * 1024})
      held.push_back(stage.get(at(kBase + slice), 512 * 1024));
    stage.get(at(kBase + 64 * kMiB + peer * kPage), 300'000);
  }
  const CacheCounters counters = stage.cache->counters();
  CHECK(counters.hits * 100 >= 99 * (counters.hits + counters.misses));
}

// Segments of 2 and 20 MiB and larger ones, tensors in them, some segments freed and others mapped in their
// place: what a caching allocator under fragmentation hands out.
TEST_CASE("of a caching allocator's buffers most are found again") {
  Stage stage(256, uint64_t{4} << 30);
  SeededRandom random(7);
  constexpr size_t kSegments = 48;
  std::vector<size_t> sizes(kSegments);
  const auto addressOf = [](size_t segment) { return kBase + segment * 256 * kMiB; };
  const auto map = [&](size_t segment) {
    const size_t choices[] = {2 * kMiB, 20 * kMiB, 20 * kMiB, (24 + 2 * random.below(40)) * kMiB};
    sizes[segment] = choices[random.below(4)];
    stage.gpu.allocateAt(addressOf(segment), sizes[segment]);
  };
  for (size_t segment = 0; segment < kSegments; segment++) map(segment);
  for (int step = 0; step < 20'000; step++) {
    const size_t segment = random.below(kSegments);
    if (random.below(200) == 0) {  // empty_cache, and other sizes come
      stage.gpu.free(reinterpret_cast<void*>(addressOf(segment)));
      map(segment);
    }
    const size_t bytes = 512 * (1 + random.below(sizes[segment] / 1024));
    const size_t offset = 512 * random.below((sizes[segment] - bytes) / 512 + 1);
    stage.get(at(addressOf(segment) + offset), bytes);
  }
  const CacheCounters counters = stage.cache->counters();
  std::printf(
      "caching allocator: %.1f %% of %llu found again, %llu given back\n",
      100.0 * static_cast<double>(counters.hits) / static_cast<double>(counters.hits + counters.misses),
      static_cast<unsigned long long>(counters.hits + counters.misses),
      static_cast<unsigned long long>(counters.evictions));
  CHECK(counters.hits * 100 >= 93 * (counters.hits + counters.misses));
}

TEST_CASE("finding a known range takes little", "[time]") {
  Stage stage;
  for (uintptr_t i = 0; i < 64; i++) stage.gpu.allocateAt(kBase + i * 4 * kMiB, 2 * kMiB);
  std::vector<RegionRef> held;
  for (uintptr_t i = 0; i < 64; i++) held.push_back(stage.get(at(kBase + i * 4 * kMiB), kMiB));
  constexpr int kRounds = 100'000;
  const auto began = std::chrono::steady_clock::now();
  MemoryDesc desc;
  desc.length = kMiB;
  desc.kind = MemoryKind::cuda;
  for (int i = 0; i < kRounds; i++) {
    desc.address = reinterpret_cast<void*>(kBase + static_cast<uintptr_t>(i % 64) * 4 * kMiB);
    if (!stage.cache->get(desc)) FAIL("not found");
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
  const auto driver = stage.gpu.driver();
  const auto asked = std::chrono::steady_clock::now();
  int known = 0;
  for (int i = 0; i < kRounds; i++)
    known += driver->lookUp(at(kBase + static_cast<uintptr_t>(i % 64) * 4 * kMiB)).gpu == 0;
  const std::chrono::duration<double, std::nano> looking = std::chrono::steady_clock::now() - asked;
  CHECK(known == kRounds);
  std::printf("a known range: %.0f ns, of which the driver's %.0f\n", took.count() / kRounds,
              looking.count() / kRounds);
  CHECK(took.count() / kRounds < 20'000);
}

TEST_CASE("a driver without pinned memory says so") {
  FakeGpu gpu;
  const auto bytes = gpu::PinnedBytes::allocate(gpu.driver(), 0, kPage);
  REQUIRE_FALSE(bytes);
  CHECK(contains(bytes.error().message(), "offers none"));
}
