// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/mem/region.h"

// The state of a RegionCache, behind its lock. Functions that drop regions release them after the lock, since
// a fabric takes its time to deregister. `mutex` is taken inside each function, never by the caller.
namespace weft::mem {

struct RegionCache::Table {
  Table(size_t most, uint64_t bytes) : mostKept(most), mostKeptBytes(bytes) {}

  // Host memory, of exactly these pages. find() counts a hit or a miss; keep() returns the region to use,
  // which is another thread's where that one was first.
  RegionRef find(const Key& key);
  RegionRef keep(const Key& key, RegionRef fresh);

  // GPU memory: any region of the allocation that covers the range. Static, as the references handed out hold
  // the table weakly.
  static RegionRef findGpu(const std::shared_ptr<Table>& table, const Key& range);
  static RegionRef keepGpu(const std::shared_ptr<Table>& table, const Key& key, const Asked& asked,
                           RegionRef fresh);
  void returned(const Key& key);  // the last user of the region is gone
  // Deregisters all regions without users. False: there was none, so asking the device again is no use.
  bool evictUnused();  // all of it; false: there was none

  // The numbers of allocations with regions that nobody uses, and the ranges that these were made for.
  std::vector<std::pair<uint64_t, Asked>> unused();
  void evictBuffer(uint64_t buffer);

  std::mutex mutex;
  CacheCounters counters;
  const size_t mostKept;
  const uint64_t mostKeptBytes;

 private:
  // The host regions found last, by a hash of the range: NCCL asks for the same few again and again.
  struct Recent {
    Key key{};
    std::weak_ptr<Region> region;
  };
  static constexpr size_t kRecent = 64;

  // A user's reference to a kept region. Under the lock.
  static RegionRef handOut(const std::shared_ptr<Table>& table, const Key& key, Entry* entry);
  Recent& recentOf(const Key& key);
  static std::vector<Key> withMore(const Key& key);
  static bool isBefore(const Key& region, const Key& range);
  void sweep();
  // Removes the unused entries for which `wanted` says yes, and returns their regions for release after the
  // lock.
  template <class Wanted>
  std::vector<RegionRef> take(Wanted wanted);
  // Takes the unused regions that were used longest ago, until both limits hold.
  std::vector<RegionRef> takeOverLimit();

  std::array<Recent, kRecent> recent_;
  std::map<Key, Entry> entries_;  // ordered by Key: an allocation's regions in a row
  size_t sweepAt_ = 64;           // the number of entries at which sweep() runs next
  uint64_t clock_ = 0;            // counts uses; not a time
};

}  // namespace weft::mem
