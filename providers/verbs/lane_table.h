// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

// From a queue pair's number to its lane, for every completion. Open addressing, at most half full, so a
// look-up takes one or two cache lines. Lanes are not owned. A single thread.
namespace weft::verbs {

template <class Lane>
class LaneTable {
 public:
  Lane* find(uint32_t queuePair) const {
    if (slots_.empty()) return nullptr;
    for (size_t at = queuePair & mask();; at = (at + 1) & mask()) {
      if (!slots_[at].lane) return nullptr;
      if (slots_[at].queuePair == queuePair) return slots_[at].lane;
    }
  }

  void insert(uint32_t queuePair, Lane* lane) {
    lanes_.push_back({queuePair, lane});
    rebuild();
  }

  void erase(const Lane* lane) {
    std::erase_if(lanes_, [&](const Slot& slot) { return slot.lane == lane; });
    rebuild();
  }

  template <class Visit>
  void forEach(Visit visit) const {
    for (const Slot& slot : lanes_) visit(*slot.lane);
  }

 private:
  struct Slot {
    uint32_t queuePair = 0;
    Lane* lane = nullptr;
  };
  size_t mask() const { return slots_.size() - 1; }

  // Lanes come and go seldom, so the table is made anew each time.
  void rebuild() {
    slots_.assign(lanes_.empty() ? 0 : std::bit_ceil(lanes_.size() * 2), Slot{});
    for (const Slot& lane : lanes_) {
      size_t at = lane.queuePair & mask();
      while (slots_[at].lane) at = (at + 1) & mask();
      slots_[at] = lane;
    }
  }

  std::vector<Slot> lanes_;  // all lanes, in order of insertion
  std::vector<Slot> slots_;  // the hash table: a power of two of slots
};

}  // namespace weft::verbs
