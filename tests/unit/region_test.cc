// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/region.h"

#include <chrono>
#include <functional>
#include <future>

#include "providers/loop/transport.h"
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
