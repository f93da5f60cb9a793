// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/transport.h"

// Registered memory of one (possibly virtual) device: one range of pages, registered on each of its rails,
// shared by everyone who asks for just these. NCCL registers the same buffer once per connection and channel,
// so finding one again must be nearly free.
//
// Who asks for a part gets a region of its own: only what somebody registered stays mapped, so a region whose
// last user has but a part of it could name pages that were given away and mapped anew.
namespace weft::mem {

class Region {
 public:
  Region(uint32_t id, const MemoryDesc& desc, std::vector<std::unique_ptr<Memory>> rails)
      : id_(id), desc_(desc), rails_(std::move(rails)) {}

  uint32_t id() const { return id_; }  // unique in the process, never reused
  MemoryKind kind() const { return desc_.kind; }
  const std::byte* begin() const { return static_cast<const std::byte*>(desc_.address); }
  size_t length() const { return desc_.length; }
  const Memory* rail(size_t i) const { return rails_[i].get(); }
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
};

// Thread-safe. No lock is held while a fabric registers, which can take long and can call back into others.
class RegionCache {
 public:
  explicit RegionCache(std::vector<std::shared_ptr<Device>> rails) : rails_(std::move(rails)) {}

  // The region of the range's pages, found or registered. Errors name the range and the device that refused.
  Result<RegionRef> get(const MemoryDesc& desc);
  CacheCounters counters() const;

 private:
  struct Key {
    uintptr_t first = 0;
    uintptr_t end = 0;
    MemoryKind kind = MemoryKind::host;
    bool strictOrder = false;
    auto operator<=>(const Key&) const = default;
  };

  static Key keyOf(const MemoryDesc& desc);
  // What was found last, by a hash of the range: NCCL asks for the same few again and again.
  struct Recent {
    Key key{};
    std::weak_ptr<Region> region;
  };
  static constexpr size_t kRecent = 64;

  Recent& recentOf(const Key& key);
  RegionRef find(const Key& key);
  RegionRef keep(const Key& key, RegionRef fresh);
  Result<RegionRef> registerOnRails(const MemoryDesc& desc) const;
  void sweep();

  std::vector<std::shared_ptr<Device>> rails_;
  mutable std::mutex mutex_;
  std::array<Recent, kRecent> recent_;
  std::map<Key, std::weak_ptr<Region>> entries_;
  size_t sweepAt_ = 64;
  CacheCounters counters_;
};

}  // namespace weft::mem
