// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/regions.h"

namespace softefa {

uint32_t Regions::add(const Region& region) {
  if (live_ >= most_ || region.length > mostBytes_ - liveBytes_) return 0;
  uint32_t slot = 0;
  if (slots_.size() <
      kSlots) {  // old slots rest for as long as there are new ones, so that stale keys are seen
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else if (!free_.empty()) {
    slot = free_.front();
    free_.erase(free_.begin());
  } else {
    return 0;
  }
  const uint32_t uses = slots_[slot].uses;
  slots_[slot] = region;
  slots_[slot].uses = uses;
  slots_[slot].live = true;
  ++live_;
  liveBytes_ += region.length;
  return slot << 8 | (uses & 0xff);
}

void Regions::remove(uint32_t key) {
  Region& region = slots_[key >> 8];
  region.live = false;
  ++region.uses;
  --live_;
  liveBytes_ -= region.length;
  free_.push_back(key >> 8);
}

Regions::Found Regions::find(uint32_t key, uint64_t address, uint64_t length, unsigned access,
                             const void* domain) const {
  const uint32_t slot = key >> 8;
  if (slot == 0 || slot >= slots_.size()) return {Verdict::unknown};
  const Region& region = slots_[slot];
  if (!region.live || (region.uses & 0xff) != (key & 0xff)) return {Verdict::ended};
  if (region.domain != domain) return {Verdict::otherDomain};
  if ((region.access & access) != access) return {Verdict::forbidden};
  const uint64_t begin = address - region.address;
  if (address < region.address || begin > region.length || length > region.length - begin)
    return {Verdict::outside};
  return {Verdict::ok, region.memory + begin};
}

}  // namespace softefa
