// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace softefa {

// Registered memory of one opened NIC. A key is a slot and the count of its uses, 24 bits in all, so that a
// key whose registration ended is told from one that never was. Local and remote key are the same, as on EFA.
// Guarded by the device's lock.
class Regions {
 public:
  struct Region {
    uint64_t address = 0;  // as work requests name it
    uint64_t length = 0;
    std::byte* memory = nullptr;
    unsigned access = 0;  // ibv_access_flags
    const void* domain = nullptr;
    uint32_t uses = 0;
    bool live = false;
  };

  enum class Verdict { ok, unknown, ended, outside, forbidden, otherDomain };

  struct Found {
    Verdict verdict = Verdict::unknown;
    std::byte* memory = nullptr;  // of the first byte asked for
  };

  Regions(size_t most, uint64_t mostBytes) : most_(most), mostBytes_(mostBytes) {}

  // The key of a new registration; 0 when there are too many, or too much memory.
  uint32_t add(const Region& region);
  void remove(uint32_t key);

  // May `domain` access these bytes through `key` with all of `access`? Zero bytes too lie inside or not; who
  // needs no address does not ask.
  Found find(uint32_t key, uint64_t address, uint64_t length, unsigned access, const void* domain) const;
  size_t live() const { return live_; }

 private:
  static constexpr uint32_t kSlots = 1U << 16;

  size_t most_;
  uint64_t mostBytes_;
  std::vector<Region> slots_{1};  // key 0 is never given
  std::vector<uint32_t> free_;
  size_t live_ = 0;
  uint64_t liveBytes_ = 0;
};

}  // namespace softefa
