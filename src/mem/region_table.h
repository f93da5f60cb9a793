// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/mem/region.h"

// The knowledge of a RegionCache, behind its lock. Regions that are dropped go after the lock: a fabric takes
// its time to deregister.
namespace weft::mem {

constexpr uintptr_t kPage = 4096;

struct RegionCache::Table {
  Table(size_t most, uint64_t bytes) : mostKept(most), mostKeptBytes(bytes) {}

  // Host memory, of exactly these pages.
  RegionRef find(const Key& key);
  RegionRef keep(const Key& key, RegionRef fresh);

  // GPU memory: any region of the allocation that covers the range.
  static RegionRef findGpu(const std::shared_ptr<Table>& table, const Key& range);
  static RegionRef keepGpu(const std::shared_ptr<Table>& table, const Key& key, RegionRef fresh);
  void returned(const Key& key);  // its last user is gone
  bool evictUnused();             // all of it; false: there was none

  // Numbers of allocations with regions that nobody uses, and an address in each.
  std::vector<std::pair<uint64_t, const void*>> unused();
  void evictBuffer(uint64_t buffer);

  std::mutex mutex;
  CacheCounters counters;
  const size_t mostKept;
  const uint64_t mostKeptBytes;

 private:
  // The regions found last, by a hash of the range: NCCL asks for the same few again and again.
  struct Recent {
    Key key{};
    std::weak_ptr<Region> region;
  };
  static constexpr size_t kRecent = 64;

  static RegionRef handOut(const std::shared_ptr<Table>& table, const Key& key, Entry* entry);
  Recent& recentOf(const Key& key);
  void sweep();
  template <class Wanted>
  std::vector<RegionRef> take(Wanted wanted);
  std::vector<RegionRef> takeOverLimit();

  std::array<Recent, kRecent> recent_;
  std::map<Key, Entry> entries_;
  size_t sweepAt_ = 64;
  uint64_t clock_ = 0;
};

}  // namespace weft::mem
