// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/region.h"

#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <string>

#include "providers/loop/transport.h"
#include "src/base/log.h"
#include "src/base/pages.h"
#include "src/mem/arena.h"
#include "tests/support/catch.h"

using namespace weft;
using namespace weft::mem;

namespace {

constexpr size_t kPage = 4096;

// A cache over one loop device with four pages to register.
struct Stage {
  Stage() : transport(loop::makeTransport({})) {
    const auto devices = transport->discover();
    REQUIRE(devices);
    const auto device = transport->open(devices->front());
    REQUIRE(device);
    rail = *device;
    cache = std::make_unique<RegionCache>(std::vector{*device});
  }

  RegionRef get(size_t offset, size_t length, bool strictOrder = false) {
    MemoryDesc desc;
    desc.address = pages + offset;
    desc.length = length;
    desc.strictOrder = strictOrder;
    const auto region = cache->get(desc);
    REQUIRE(region);
    CHECK((*region)->covers(desc.address, length));
    return *region;
  }

  bool counted(uint64_t hits, uint64_t misses) const {
    const CacheCounters counters = cache->counters();
    return counters.hits == hits && counters.misses == misses;
  }

  alignas(kPage) std::byte pages[4 * kPage] = {};
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Device> rail;
  std::unique_ptr<RegionCache> cache;
};

// A device that lets the test act while it registers.
class SlowDevice final : public Device {
 public:
  explicit SlowDevice(std::shared_ptr<Device> real) : real_(std::move(real)) {}
  const DeviceInfo& info() const override { return real_->info(); }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override {
    if (whileRegistering) whileRegistering();
    return real_->registerMemory(desc);
  }
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override {
    return real_->openQueue(wanted);
  }
  std::function<void()> whileRegistering;

 private:
  const std::shared_ptr<Device> real_;
};

}  // namespace

TEST_CASE("a thread that registers a chunk of protocol memory holds up no other") {
  const auto transport = loop::makeTransport({});
  const auto device = transport->open(transport->discover()->front());
  REQUIRE(device);
  const auto slow = std::make_shared<SlowDevice>(*device);
  RegionCache cache(std::vector<std::shared_ptr<Device>>{slow});
  Arena arena(&cache);
  const auto first = arena.take(1024);
  REQUIRE(first);
  const size_t bytes = arena.registeredBytes();
  std::future<bool> other;
  slow->whileRegistering = [&] {
    other = std::async(std::launch::async, [&] { return arena.take(1024).operator bool(); });
    CHECK(other.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  };
  const auto large = arena.take(2 * bytes);  // there is no room for it
  REQUIRE(large);
  REQUIRE(other.valid());
  CHECK(other.get());
  CHECK(arena.registeredBytes() >= 3 * bytes);
}

TEST_CASE("a range that lives is registered once, and anew when its last user is gone") {
  Stage stage;
  RegionRef first = stage.get(0, 2 * kPage);
  RegionRef again = stage.get(0, 2 * kPage);
  CHECK(again == first);
  CHECK(stage.get(0, 2 * kPage) == first);
  CHECK(stage.counted(2, 1));
  const uint32_t id = first->id();
  first.reset();
  CHECK(stage.get(0, 2 * kPage)->id() == id);
  again.reset();
  CHECK(stage.get(0, 2 * kPage)->id() != id);
  CHECK(stage.counted(3, 2));
}

TEST_CASE("what lies on the same pages shares them") {
  Stage stage;
  const RegionRef first = stage.get(100, kPage);
  CHECK(first->begin() == stage.pages);
  CHECK(first->length() == 2 * kPage);
  CHECK(stage.get(kPage - 1, 2) == first);
  CHECK(stage.counted(1, 1));
  CHECK(stage.get(100, kPage, true) != first);  // but not across the orders of writing
}

// The larger range's other page may be unmapped meanwhile, and other memory be mapped there.
TEST_CASE("a part of a range does not keep the whole of it to be found") {
  Stage stage;
  RegionRef whole = stage.get(0, 2 * kPage);
  const uint32_t id = whole->id();
  const RegionRef part = stage.get(kPage, kPage);
  whole.reset();
  CHECK(stage.get(0, 2 * kPage)->id() != id);
  CHECK(part->begin() == stage.pages + kPage);
  CHECK(part->length() == kPage);
  CHECK(stage.counted(0, 3));
}

TEST_CASE("many ranges that come and go leave those that stay to be found") {
  Stage stage;
  const RegionRef stays = stage.get(0, kPage);
  for (int round = 0; round < 100; round++)
    for (size_t page = 1; page < 4; page++) stage.get(page * kPage, kPage);
  CHECK(stage.get(0, kPage) == stays);
  CHECK(stage.counted(1, 301));
}

TEST_CASE("memory of weft's own is mapped by itself, and what is not is refused") {
  Stage stage;
  const auto mapped = mapPages(100);
  REQUIRE(mapped);
  MemoryDesc desc;
  desc.address = mapped->get();
  desc.length = 100;
  desc.ours = true;
  CHECK(stage.cache->get(desc));
  const auto heap = std::make_unique<std::byte[]>(3 * kPage);
  desc.address = heap.get() + 16;
  if (reinterpret_cast<uintptr_t>(desc.address) % kPage == 0) desc.address = heap.get() + 32;
  const auto refused = stage.cache->get(desc);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::internal);
  desc.ours = false;  // NCCL's and its user's is theirs
  CHECK(stage.cache->get(desc));
}

// The kernel of Grace hosts has pages of 64 KiB.
TEST_CASE("regions are whole pages, as large as the kernel's are") {
  Stage stage;
  const size_t page = GENERATE(4096, 65536);
  CacheOptions options;
  options.pageBytes = page;
  RegionCache cache({stage.rail}, options);
  const auto memory = mapPages(4 * 65536);
  REQUIRE(memory);
  auto* first = memory->get();
  first += (65536 - reinterpret_cast<uintptr_t>(first) % 65536) % 65536;
  MemoryDesc desc;
  desc.address = first + 5000;
  desc.length = 8;
  const auto one = cache.get(desc);
  REQUIRE(one);
  CHECK((*one)->length() == page);
  CHECK(reinterpret_cast<uintptr_t>((*one)->begin()) % page == 0);
  desc.address = first + 20000;
  const auto other = cache.get(desc);
  REQUIRE(other);
  CHECK((*other == *one) == (page == 65536));
}

TEST_CASE("a forked child gets no pages of memory for messages") {
  const auto mapped = mapPages(1);
  REQUIRE(mapped);
  std::ifstream maps("/proc/self/smaps");
  const std::string start =
      format("%lx-", static_cast<unsigned long>(reinterpret_cast<uintptr_t>(mapped->get())));
  std::string line, flags;
  bool inside = false;
  while (std::getline(maps, line)) {
    if (line.find('-') != std::string::npos && line.find("kB") == std::string::npos &&
        line.find("VmFlags") == std::string::npos)
      inside = line.starts_with(start);
    if (inside && line.starts_with("VmFlags:")) flags = line;
  }
  CHECK(flags.find(" dc") != std::string::npos);
}
