// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/mem/gpu/driver.h"
#include "src/mem/gpu_path.h"
#include "weft/transport.h"

// Registered memory of one (possibly virtual) device: one range of pages, registered on each of its rails,
// shared by everyone who asks for it. NCCL registers the same buffer once per connection and channel, so
// finding one again must be nearly free.
//
// Host memory: who asks for a part gets a region of its own, and a region goes with its last user. Only what
// somebody registered stays mapped, so another region could name pages that were given away and mapped anew.
//
// GPU memory: the driver numbers allocations and never uses a number twice, so a region is found by that,
// and one address that was freed and allocated anew is another region. An allocation is registered as a whole
// where it is small enough, and its parts are found in it; one that is mapped of several segments never is,
// as what lies beside a segment may be another's. Regions stay for the next user, within limits.
namespace weft::mem {

class Region {
 public:
  Region(uint32_t id, const MemoryDesc& desc, std::vector<std::unique_ptr<Memory>> rails)
      : id_(id), desc_(desc), rails_(std::move(rails)) {}

  uint32_t id() const { return id_; }  // unique in the process, never reused
  MemoryKind kind() const { return desc_.kind; }
  int gpu() const { return desc_.gpu; }  // -1: the host's memory
  const std::byte* begin() const { return static_cast<const std::byte*>(desc_.address); }
  size_t length() const { return desc_.length; }
  const Memory* rail(size_t i) const { return rails_[i].get(); }  // null: it cannot reach such memory
  size_t rails() const { return rails_.size(); }

  bool covers(const void* address, size_t bytes) const {
    const auto* first = static_cast<const std::byte*>(address);
    return first >= begin() && bytes <= length() && static_cast<size_t>(first - begin()) <= length() - bytes;
  }
  uint64_t offsetOf(const void* address) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(address) - begin());
  }

 private:
  uint32_t id_;
  MemoryDesc desc_;
  std::vector<std::unique_ptr<Memory>> rails_;
};
using RegionRef = std::shared_ptr<Region>;

struct CacheCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t bytes = 0;        // registered in all
  uint64_t nanoseconds = 0;  // spent registering
  uint64_t evictions = 0;    // given back although kept: over the limits, freed memory, or a full device
};

struct CacheOptions {
  std::shared_ptr<const gpu::Driver> driver;  // null: there is no GPU memory
  GpuPath path;                               // to it
  bool ordersWrites = false;                  // what a card wrote there needs no flush
  size_t mostKept = 256;                      // regions of GPU memory that nobody uses
  uint64_t mostKeptBytes = uint64_t{4} << 30;
  size_t hostRails = 0;  // the last so many of the rails reach host memory only
};

// Thread-safe. No lock is held while a fabric registers, which can take long and can call back into others.
class RegionCache {
 public:
  explicit RegionCache(std::vector<std::shared_ptr<Device>> rails, CacheOptions options = {});
  ~RegionCache();

  // A region that covers the range, found or registered. Errors name the range and the device that refused.
  Result<RegionRef> get(const MemoryDesc& desc);
  // Gives back what is kept of GPU memory that was freed meanwhile: a registration holds it.
  void dropFreed();
  CacheCounters counters() const;
  std::string summary() const;  // of the counters, for the log

  bool ordersWrites() const { return options_.ordersWrites; }
  const gpu::Driver* driver() const { return options_.driver.get(); }

 private:
  struct Key {
    uint64_t buffer = 0;  // the driver's number of the allocation; 0: host memory
    bool strictOrder = false;
    uintptr_t first = 0;
    uintptr_t end = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    std::weak_ptr<Region> users;
    RegionRef kept;  // GPU memory: also without users
    uint64_t lastUsed = 0;
  };
  struct Table;
  struct GpuRange;

  static Key keyOf(const MemoryDesc& desc);
  Result<RegionRef> getHost(const MemoryDesc& desc);
  Result<RegionRef> getGpu(const MemoryDesc& desc);
  Result<GpuRange> findOut(const MemoryDesc& desc) const;
  Status refuseGpu(const MemoryDesc& desc) const;
  Result<RegionRef> registerGpu(const MemoryDesc& desc, const GpuRange& range);
  Result<RegionRef> registerGpuRange(const MemoryDesc& desc, uintptr_t first, uintptr_t end, bool given);
  Result<RegionRef> registerEvicting(const MemoryDesc& desc);
  Result<RegionRef> registerOnRails(const MemoryDesc& desc) const;

  const std::vector<std::shared_ptr<Device>> rails_;
  const CacheOptions options_;
  const std::shared_ptr<Table> table_;  // users of GPU regions know it, too
};

}  // namespace weft::mem
