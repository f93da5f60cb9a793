// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "weft/collective.h"

// The memory that is registered with a group, owned here. T is the group's own kind of GroupMemory. Any
// thread.
namespace weft::coll {

template <typename T>
class MemoryList {
 public:
  GroupMemory* keep(std::unique_ptr<T> memory) {
    std::lock_guard lock(mutex_);
    memories_.push_back(std::move(memory));
    return memories_.back().get();
  }

  // Takes the memory out of the list, for the caller to release outside the lock. An error where it is not in
  // the list.
  Result<std::unique_ptr<T>> take(const GroupMemory* memory) {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(memories_.begin(), memories_.end(),
                                    [&](const auto& one) { return one.get() == memory; });
    if (found == memories_.end())
      return Error(Code::invalidArgument, "deregistering memory", "it is not registered with this group");
    auto taken = std::move(*found);
    memories_.erase(found);
    return taken;
  }

  // The memory that was never deregistered, when the group ends.
  std::vector<std::unique_ptr<T>> takeAll() {
    std::lock_guard lock(mutex_);
    return std::exchange(memories_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> memories_;
};

}  // namespace weft::coll
