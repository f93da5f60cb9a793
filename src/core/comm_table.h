// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

// An engine's comms by the number its peers use for them: a place in an array, and above it how often the
// place was taken before, so that a late message to a comm that is gone finds nobody. 0 is nobody's. One
// thread.
namespace weft::core {

class CommBase;

class CommTable {
 public:
  uint32_t add(CommBase* comm) {
    auto place = static_cast<uint32_t>(entries_.size());
    if (free_.empty()) {
      entries_.push_back({comm, 0});
    } else {
      place = free_.back();
      free_.pop_back();
      entries_[place].comm = comm;
    }
    return entries_[place].turn << kPlaceBits | place;
  }

  CommBase* find(uint32_t number) {  // mostly the same again
    if (number != lastNumber_) [[unlikely]]
      remember(number);
    return last_;
  }

  void remove(uint32_t number) {
    if (!find(number)) return;
    Entry& entry = entries_[number & kPlaceMask];
    entry.comm = nullptr;
    entry.turn = (entry.turn + 1) & kTurnMask;
    lastNumber_ = 0;
    last_ = nullptr;
    free_.insert(free_.begin(), number & kPlaceMask);  // the place that rested longest is taken next
  }

  bool empty() const {
    return std::none_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.comm; });
  }

  template <class Visit>
  void each(Visit visit) const {
    for (size_t place = 0; place < entries_.size(); place++) {
      if (entries_[place].comm) visit(*entries_[place].comm);
    }
  }

 private:
  static constexpr uint32_t kPlaceBits = 18;
  static constexpr uint32_t kPlaceMask = (uint32_t{1} << kPlaceBits) - 1;
  static constexpr uint32_t kTurnMask = UINT32_MAX >> kPlaceBits;

  struct Entry {
    CommBase* comm = nullptr;
    uint32_t turn = 0;
  };

  [[gnu::noinline]] void remember(uint32_t number) {
    const uint32_t place = number & kPlaceMask;
    const bool known = place < entries_.size() && entries_[place].turn == number >> kPlaceBits;
    last_ = known ? entries_[place].comm : nullptr;
    lastNumber_ = known ? number : 0;
  }

  std::vector<Entry> entries_ = std::vector<Entry>(1);  // place 0 stays empty
  std::vector<uint32_t> free_;
  uint32_t lastNumber_ = 0;  // looked up last, 0 where nobody has it
  CommBase* last_ = nullptr;
};

}  // namespace weft::core
