// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/region.h"

#include <algorithm>

#include "src/base/log.h"

namespace weft::mem {

namespace {

constexpr uintptr_t kPage = 4096;

std::atomic<uint32_t> nextId{1};

// Pages around the range are mapped as well, so rounding lets what lies on the same ones be shared. A dma-buf
// is exactly what its exporter says.
MemoryDesc rounded(MemoryDesc desc) {
  if (desc.kind != MemoryKind::host) return desc;
  const auto address = reinterpret_cast<uintptr_t>(desc.address);
  const uintptr_t first = address / kPage * kPage;
  const uintptr_t end = (address + desc.length + kPage - 1) / kPage * kPage;
  desc.address = static_cast<std::byte*>(desc.address) - (address - first);
  desc.length = end - first;
  return desc;
}

Status checkRange(const MemoryDesc& desc) {
  const auto first = reinterpret_cast<uintptr_t>(desc.address);
  if (desc.address && desc.length > 0 && desc.length <= UINTPTR_MAX - kPage - first) return {};
  return Error(Code::invalidArgument, "registering memory",
               format("%zu bytes at %p are not a range; pass the buffer's address and size", desc.length,
                      desc.address));
}

}  // namespace

RegionCache::Key RegionCache::keyOf(const MemoryDesc& desc) {
  const auto first = reinterpret_cast<uintptr_t>(desc.address);
  return {first, first + desc.length, desc.kind, desc.strictOrder};
}

Result<RegionRef> RegionCache::get(const MemoryDesc& wanted) {
  TRY(checkRange(wanted));
  const MemoryDesc desc = rounded(wanted);
  const Key key = keyOf(desc);
  if (RegionRef found = find(key)) return found;
  TRY(RegionRef fresh, registerOnRails(desc));
  return keep(key, std::move(fresh));
}

RegionCache::Recent& RegionCache::recentOf(const Key& key) {
  const uint64_t pages = (key.first / kPage) ^ ((key.end / kPage) << 20);
  return recent_[(pages * 0x9e3779b97f4a7c15u) >> 58];
}

RegionRef RegionCache::find(const Key& key) {
  std::lock_guard lock(mutex_);
  Recent& recent = recentOf(key);
  RegionRef found = recent.key == key ? recent.region.lock() : nullptr;
  if (!found) {
    const auto entry = entries_.find(key);
    if (entry != entries_.end()) found = entry->second.lock();
    recent = {key, found};
  }
  (found ? counters_.hits : counters_.misses)++;
  return found;
}

// Two threads may have registered the same range at once: the first one in is kept, the other goes.
RegionRef RegionCache::keep(const Key& key, RegionRef fresh) {
  std::lock_guard lock(mutex_);
  auto& entry = entries_[key];
  if (RegionRef earlier = entry.lock()) return earlier;
  entry = fresh;
  if (entries_.size() > sweepAt_) sweep();
  return fresh;
}

// Forgets regions that are gone. Runs each time the table has doubled, so its cost per registration is
// constant.
void RegionCache::sweep() {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
  sweepAt_ = std::max<size_t>(64, 2 * entries_.size());
}

Result<RegionRef> RegionCache::registerOnRails(const MemoryDesc& desc) const {
  std::vector<std::unique_ptr<Memory>> memories;
  for (const auto& device : rails_) {
    TRY(auto memory, device->registerMemory(desc));
    memories.push_back(std::move(memory));
  }
  return std::make_shared<Region>(nextId.fetch_add(1), desc, std::move(memories));
}

CacheCounters RegionCache::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace weft::mem
