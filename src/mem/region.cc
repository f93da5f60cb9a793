// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/region.h"

#include <atomic>
#include <chrono>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/pages.h"
#include "src/mem/region_table.h"

// Regions of host memory, and what host and GPU memory have in common. GPU memory: region_gpu.cc. The table
// behind the lock: region_table.cc.
namespace weft::mem {

namespace {

std::atomic<uint32_t> nextId{1};

}  // namespace

RegionCache::RegionCache(std::vector<std::shared_ptr<Device>> rails, CacheOptions options)
    : rails_(std::move(rails)),
      options_(std::move(options)),
      page_(options_.pageBytes ? options_.pageBytes : pageBytes()),
      table_(std::make_shared<Table>(options_.mostKept, options_.mostKeptBytes)) {}

// Regions that nobody uses end here, before the devices that they are registered with.
RegionCache::~RegionCache() {
  if (counters().misses > 0 && !rails_.empty())
    WEFT_LOG(info, "%s: %s", rails_.front()->info().name.c_str(), summary().c_str());
  table_->evictUnused();
}

// Rounds a range to whole pages. The pages at both ends are mapped as a whole, so buffers that share a page
// share a region.
MemoryDesc RegionCache::rounded(MemoryDesc desc) const {
  const auto address = reinterpret_cast<uintptr_t>(desc.address);
  const uintptr_t first = pageOf(address);
  desc.length = pageBehind(address + desc.length) - first;
  desc.address = static_cast<std::byte*>(desc.address) - (address - first);
  return desc;
}

// Memory of ours that begins within a page shares that page with something else, which a forked child would
// lose with it.
Status RegionCache::checkRange(const MemoryDesc& desc) const {
  const auto first = reinterpret_cast<uintptr_t>(desc.address);
  if (desc.ours && first % pageBytes() != 0)
    return Error(Code::internal, "registering memory",
                 format("%zu bytes at %p are weft's own and not mapped by themselves (src/base/pages.h)",
                        desc.length, desc.address));
  if (desc.address && desc.length > 0 && desc.length <= UINTPTR_MAX - page_ - first) return {};
  return Error(Code::invalidArgument, "registering memory",
               format("%zu bytes at %p are not a range; pass the buffer's address and size", desc.length,
                      desc.address));
}

RegionCache::Key RegionCache::keyOf(const MemoryDesc& desc) {
  const auto first = reinterpret_cast<uintptr_t>(desc.address);
  return {0, desc.strictOrder, desc.peers, first, first + desc.length};
}

Result<RegionRef> RegionCache::get(const MemoryDesc& wanted) {
  TRY(checkRange(wanted));
  return wanted.kind == MemoryKind::host ? getHost(wanted) : getGpu(wanted);
}

Result<RegionRef> RegionCache::getHost(const MemoryDesc& wanted) {
  const MemoryDesc desc = rounded(wanted);
  const Key key = keyOf(desc);
  if (RegionRef found = table_->find(key)) return found;
  TRY(refuseGpu(wanted));
  TRY(RegionRef fresh, registerEvicting(desc));
  return table_->keep(key, std::move(fresh));
}

// A device that has no room left (Code::resources) gets rid of the regions that nobody uses, and is asked
// once more.
Result<RegionRef> RegionCache::registerEvicting(const MemoryDesc& desc) {
  auto region = registerOnRails(desc);
  if (region || region.error().code() != Code::resources || !table_->evictUnused()) return region;
  return registerOnRails(desc);
}

// Registers on every rail, or on none: an error drops the registrations made so far. The last `hostRails`
// rails get a null for GPU memory.
Result<RegionRef> RegionCache::registerOnRails(const MemoryDesc& desc) const {
  const TimePoint began = Clock::system().now();
  std::vector<std::unique_ptr<Memory>> memories;
  for (const auto& device : rails_) {
    if (desc.kind != MemoryKind::host && memories.size() + options_.hostRails >= rails_.size()) {
      memories.push_back(nullptr);
      continue;
    }
    auto memory = device->registerMemory(desc);
    if (!memory && desc.kind != MemoryKind::host) {
      const Error& error = memory.error();
      return Error(error.code(), "registering GPU memory",
                   format("%zu bytes at %p of GPU %d with %s: %s", desc.length, desc.address, desc.gpu,
                          device->info().name.c_str(), error.message().c_str()));
    }
    if (!memory) return memory.takeError();
    memories.push_back(memory.take());
  }
  auto region = std::make_shared<Region>(nextId.fetch_add(1), desc, std::move(memories));
  const Nanoseconds took = Clock::system().now() - began;
  std::lock_guard lock(table_->mutex);
  table_->counters.bytes += desc.length;
  table_->counters.nanoseconds += static_cast<uint64_t>(took.count());
  return region;
}

CacheCounters RegionCache::counters() const {
  std::lock_guard lock(table_->mutex);
  return table_->counters;
}

std::string RegionCache::summary() const {
  const CacheCounters all = counters();
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  return format("registrations: %llu found again, %llu made, %llu MiB in %llu ms, %llu given back early",
                number(all.hits), number(all.misses), number(all.bytes >> 20),
                number(all.nanoseconds / 1'000'000), number(all.evictions));
}

}  // namespace weft::mem
