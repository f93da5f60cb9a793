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

// Registered memory of one device, which may be several rails: a range of pages, registered on each rail and
// shared by everyone who asks for it. NCCL registers the same buffer once per connection and channel, so
// finding it again must be nearly free.
//
// Host memory: a request for a part of a region gets a region of its own, and a region ends with its last
// user. Only pages that somebody has registered now are sure to stay mapped; a region kept longer could name
// pages that were unmapped and mapped anew.
//
// GPU memory: the driver numbers allocations and never uses a number twice (memory without a number is
// treated as the host's). Regions are found by that number,
// so an address that was freed and allocated anew gets another region. An allocation is registered as a whole
// where it is small enough, and its parts are found in it. An allocation of several segments never is, as the
// neighbour of a segment may belong to another allocation. Regions stay for the next user, within limits.
//
// A region that lets peers do more than a user wants serves that user too; one that lets them do less does
// not, and the range is registered a second time.
namespace weft::mem {

// A registered range. Immutable, and so used by any thread; the last reference deregisters it.
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

  // The range lies wholly inside the region; written so that no sum overflows.
  bool covers(const void* address, size_t bytes) const {
    const auto* first = static_cast<const std::byte*>(address);
    return first >= begin() && bytes <= length() && static_cast<size_t>(first - begin()) <= length() - bytes;
  }
  uint64_t offsetOf(const void* address) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(address) - begin());
  }

 private:
  uint32_t id_;                                 // outlives every restart of the plugin in this process
  MemoryDesc desc_;                             // of the whole region; its descriptor is closed by then
  std::vector<std::unique_ptr<Memory>> rails_;  // as many as the device has rails
};
using RegionRef = std::shared_ptr<Region>;

// The work of the cache so far. Sums over its life; `bytes` counts regions that are gone as well.
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
  size_t mostKept = 256;                      // regions of GPU memory that nobody uses, at most
  // Their bytes together, at most; an allocation larger than this is registered in parts.
  uint64_t mostKeptBytes = uint64_t{4} << 30;
  size_t pageBytes = 0;  // of the host; 0: the kernel's. Tests play kernels with larger ones.
  size_t hostRails = 0;  // the last so many of the rails reach host memory only
};

// Finds and makes the regions of one device; the device owns it. Thread-safe. The cache holds no lock while a
// fabric registers, which can take long and can call back into other code.
class RegionCache {
 public:
  explicit RegionCache(std::vector<std::shared_ptr<Device>> rails, CacheOptions options = {});
  ~RegionCache();

  // A region that covers the range, found or registered. Errors name the range and the device that refused.
  Result<RegionRef> get(const MemoryDesc& desc);
  // Deregisters unused regions of GPU memory that was freed meanwhile: a registration keeps the memory from
  // being reused.
  void dropFreed();
  CacheCounters counters() const;
  std::string summary() const;  // of the counters, for the log

  bool ordersWrites() const { return options_.ordersWrites; }
  const gpu::Driver* driver() const { return options_.driver.get(); }

 private:
  // Orders regions by allocation and range, so that all regions of an allocation stand together.
  struct Key {
    uint64_t buffer = 0;  // the driver's number of the allocation; 0: host memory, or it has none
    bool strictOrder = false;
    PeerAccess peers = PeerAccess::none;
    uintptr_t first = 0;
    uintptr_t end = 0;
    auto operator<=>(const Key&) const = default;
  };
  // A range as a user named it.
  struct Asked {
    const void* address = nullptr;
    size_t length = 0;
  };
  // A region in the table. Host memory: `users` alone. GPU memory: `kept` is the region, and `users` share a
  // second reference that reports its end (region_table.cc).
  struct Entry {
    std::weak_ptr<Region> users;
    RegionRef kept;         // GPU memory: also without users
    Asked asked;            // GPU memory: what the region was made for
    uint64_t lastUsed = 0;  // by Table::clock_, for the order of eviction
  };
  struct Table;
  struct GpuRange;

  uintptr_t pageOf(uintptr_t address) const { return address / page_ * page_; }
  uintptr_t pageBehind(uintptr_t end) const { return pageOf(end + page_ - 1); }
  MemoryDesc rounded(MemoryDesc desc) const;
  Status checkRange(const MemoryDesc& desc) const;
  // Key of a host range; `desc` is rounded to pages.
  static Key keyOf(const MemoryDesc& desc);
  Result<RegionRef> getHost(const MemoryDesc& desc);
  Result<RegionRef> getGpu(const MemoryDesc& desc);
  Result<RegionRef> getUnnumbered(const MemoryDesc& desc, const GpuRange& range);
  // Asks the driver for the allocation around a range.
  Result<GpuRange> findOut(const MemoryDesc& desc) const;
  Status refuseGpu(const MemoryDesc& desc) const;  // an error where the address is a GPU's
  Result<RegionRef> registerGpu(const MemoryDesc& desc, const GpuRange& range);
  Result<RegionRef> registerPart(const MemoryDesc& desc, const GpuRange& range);
  // `given`: the caller's own dma-buf descriptor is used and no other one is exported.
  Result<RegionRef> registerGpuRange(const MemoryDesc& desc, uintptr_t first, uintptr_t end, bool given);
  Result<RegionRef> registerEvicting(const MemoryDesc& desc);
  Result<RegionRef> registerOnRails(const MemoryDesc& desc) const;

  const std::vector<std::shared_ptr<Device>> rails_;
  const CacheOptions options_;
  const uintptr_t page_;                // bytes
  const std::shared_ptr<Table> table_;  // the deleters of GPU regions hold it weakly, too
};

}  // namespace weft::mem
