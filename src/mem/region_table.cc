// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/region_table.h"

#include <algorithm>

// The table of a RegionCache. Locals named `gone` are declared before the lock guard, and so are released
// after it.
namespace weft::mem {

// A cell of 64 by multiplicative hashing; the top 6 bits of the product are the best mixed ones.
RegionCache::Table::Recent& RegionCache::Table::recentOf(const Key& key) {
  constexpr uint64_t kLeastPage = 4096;
  const uint64_t pages = (key.first / kLeastPage) ^ ((key.end / kLeastPage) << 20);
  return recent_[(pages * 0x9e3779b97f4a7c15u) >> 58];
}

// The key, and those of regions that let peers do more.
std::vector<RegionCache::Key> RegionCache::Table::withMore(const Key& key) {
  std::vector<Key> keys;
  for (Key each = key; each.peers <= PeerAccess::readAndWrite;
       each.peers = static_cast<PeerAccess>(static_cast<uint8_t>(each.peers) + 1))
    keys.push_back(each);
  return keys;
}

// Of one allocation and kind, and it begins where the range does or before.
bool RegionCache::Table::isBefore(const Key& region, const Key& range) {
  return region.buffer == range.buffer && region.strictOrder == range.strictOrder &&
         region.peers == range.peers && region.first <= range.first;
}

RegionRef RegionCache::Table::find(const Key& key) {
  std::lock_guard lock(mutex);
  Recent& recent = recentOf(key);
  RegionRef found = recent.key == key ? recent.region.lock() : nullptr;
  if (!found) {
    for (const Key& each : withMore(key)) {
      const auto entry = entries_.find(each);
      if (!found && entry != entries_.end()) found = entry->second.users.lock();
    }
    recent = {key, found};
  }
  (found ? counters.hits : counters.misses)++;
  return found;
}

// Two threads may have registered the same range at once. The first one in is kept; the other one's region
// ends with its reference.
RegionRef RegionCache::Table::keep(const Key& key, RegionRef fresh) {
  std::lock_guard lock(mutex);
  auto& entry = entries_[key];
  if (RegionRef earlier = entry.users.lock()) return earlier;
  entry.users = fresh;
  if (entries_.size() > sweepAt_) sweep();
  return fresh;
}

// Forgets the entries of host regions that are gone. It runs each time the table has doubled, so its cost per
// registration is constant.
void RegionCache::Table::sweep() {
  std::erase_if(entries_,
                [](const auto& entry) { return !entry.second.kept && entry.second.users.expired(); });
  sweepAt_ = std::max<size_t>(64, 2 * entries_.size());
}

// All users of a region share one reference, whose deleter tells the table. The region itself belongs to the
// table until the deleter has run; a copy of `kept` in the deleter keeps it alive when the table is gone
// first.
RegionRef RegionCache::Table::handOut(const std::shared_ptr<Table>& table, const Key& key, Entry* entry) {
  entry->lastUsed = ++table->clock_;
  if (RegionRef shared = entry->users.lock()) return shared;
  const auto lastGone = [of = std::weak_ptr<Table>(table), key, region = entry->kept](Region*) mutable {
    region.reset();
    if (const auto living = of.lock()) living->returned(key);
  };
  RegionRef shared(entry->kept.get(), lastGone);
  entry->users = shared;
  return shared;
}

// An allocation has few regions, the whole of it or the parts that were asked for, so they are looked at one
// by one. The search ends at the first region that begins behind the range.
RegionRef RegionCache::Table::findGpu(const std::shared_ptr<Table>& table, const Key& range) {
  std::lock_guard lock(table->mutex);
  for (const Key& wanted : withMore(range)) {
    auto entry = table->entries_.lower_bound({wanted.buffer, wanted.strictOrder, wanted.peers, 0, 0});
    for (; entry != table->entries_.end() && isBefore(entry->first, wanted); ++entry) {
      if (entry->first.end < range.end) continue;
      table->counters.hits++;
      return handOut(table, entry->first, &entry->second);
    }
  }
  table->counters.misses++;
  return nullptr;
}

RegionRef RegionCache::Table::keepGpu(const std::shared_ptr<Table>& table, const Key& key, const Asked& asked,
                                      RegionRef fresh) {
  std::lock_guard lock(table->mutex);
  auto& entry = table->entries_[key];
  if (!entry.kept) {
    entry.kept = std::move(fresh);
    entry.asked = asked;
  }
  return handOut(table, key, &entry);
}

template <class Wanted>
std::vector<RegionRef> RegionCache::Table::take(Wanted wanted) {
  std::vector<RegionRef> taken;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const bool goes = entry->second.kept && entry->second.users.expired() && wanted(*entry);
    if (goes) taken.push_back(std::move(entry->second.kept));
    entry = goes ? entries_.erase(entry) : std::next(entry);
  }
  counters.evictions += taken.size();
  return taken;
}

std::vector<RegionRef> RegionCache::Table::takeOverLimit() {
  std::vector<std::pair<uint64_t, uint64_t>> idle;  // when it was used last, bytes
  uint64_t bytes = 0;
  for (const auto& [key, entry] : entries_) {
    if (!entry.kept || !entry.users.expired()) continue;
    idle.emplace_back(entry.lastUsed, key.end - key.first);
    bytes += key.end - key.first;
  }
  std::sort(idle.begin(), idle.end());
  uint64_t oldestKept = 0;
  size_t count = idle.size();
  for (const auto& [used, size] : idle) {
    if (count <= mostKept && bytes <= mostKeptBytes) break;
    oldestKept = used + 1;
    bytes -= size;
    count--;
  }
  if (oldestKept == 0) return {};
  return take([&](const auto& entry) { return entry.second.lastUsed < oldestKept; });
}

// Runs in the deleter of the last user, on any thread. Another user may have taken the region again before
// the lock was had here.
void RegionCache::Table::returned(const Key& key) {
  std::vector<RegionRef> gone;  // after the lock
  std::lock_guard lock(mutex);
  const auto entry = entries_.find(key);
  if (entry == entries_.end() || !entry->second.users.expired()) return;  // taken up again
  entry->second.lastUsed = ++clock_;
  gone = takeOverLimit();
}

bool RegionCache::Table::evictUnused() {
  std::vector<RegionRef> gone;
  std::lock_guard lock(mutex);
  gone = take([](const auto&) { return true; });
  return !gone.empty();
}

std::vector<std::pair<uint64_t, RegionCache::Asked>> RegionCache::Table::unused() {
  std::vector<std::pair<uint64_t, Asked>> list;
  std::lock_guard lock(mutex);
  for (const auto& [key, entry] : entries_)
    if (entry.kept && entry.users.expired()) list.emplace_back(key.buffer, entry.asked);
  return list;
}

void RegionCache::Table::evictBuffer(uint64_t buffer) {
  std::vector<RegionRef> gone;
  std::lock_guard lock(mutex);
  gone = take([&](const auto& entry) { return entry.first.buffer == buffer; });
}

}  // namespace weft::mem
