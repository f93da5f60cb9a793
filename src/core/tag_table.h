// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// 32-bit tag -> State, open addressing. NCCL uses a rank as tag, so a comm sees few of them, and mostly the
// same again: that one is remembered, and only a tag never seen before can allocate. States move when the
// table grows: no pointers to them are kept. One thread.
namespace weft::core {

template <class State>
class TagTable {
 public:
  TagTable() = default;
  TagTable(const TagTable&) = delete;  // last_ points into the table
  TagTable& operator=(const TagTable&) = delete;

  State& at(uint32_t tag) {
    if (lastTag_ != tag) [[unlikely]]
      remember(tag);
    return *last_;
  }

  template <class Visit>
  void each(Visit visit) {
    for (Entry& entry : entries_) {
      if (entry.used) visit(entry.tag, entry.state);
    }
  }

 private:
  struct Entry {
    uint32_t tag = 0;
    bool used = false;
    State state{};
  };

  [[gnu::noinline]] void remember(uint32_t tag) {
    last_ = &entryOf(tag).state;
    lastTag_ = tag;
  }

  Entry& entryOf(uint32_t tag) {
    size_t i = find(tag);
    if (!entries_[i].used) {
      if ((++used_ + 1) * 2 > entries_.size()) grow(), i = find(tag);
      entries_[i].used = true;
      entries_[i].tag = tag;
    }
    return entries_[i];
  }

  size_t find(uint32_t tag) const {
    const size_t mask = entries_.size() - 1;
    size_t i = (tag * 0x9e3779b1u >> 7) & mask;
    while (entries_[i].used && entries_[i].tag != tag) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (Entry& entry : old) {
      if (entry.used) entries_[find(entry.tag)] = std::move(entry);
    }
  }

  std::vector<Entry> entries_ = std::vector<Entry>(4);
  size_t used_ = 0;
  uint64_t lastTag_ = UINT64_MAX;  // what was looked up last, nothing yet; set anew after any growth
  State* last_ = nullptr;
};

}  // namespace weft::core
