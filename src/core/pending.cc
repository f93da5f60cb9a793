// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/pending.h"

#include <mutex>
#include <utility>
#include <vector>

namespace weft::core {

uint64_t PendingTable::keep(std::shared_ptr<Pending> meeting) {
  const std::lock_guard lock(mutex_);
  meetings_.emplace(++lastToken_, std::move(meeting));
  return lastToken_;
}

std::shared_ptr<Pending> PendingTable::find(uint64_t token, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto found = meetings_.find(token);
  if (found == meetings_.end()) return nullptr;
  found->second->called(now);
  return found->second;
}

void PendingTable::drop(uint64_t token) {
  std::shared_ptr<Pending> dropped;
  const std::lock_guard lock(mutex_);
  if (const auto found = meetings_.find(token); found != meetings_.end()) {
    dropped = std::move(found->second);
    meetings_.erase(found);
  }
}

void PendingTable::dropExpired(TimePoint now) {
  dropIf([&](const Pending& meeting) { return meeting.expired(now); });
}

void PendingTable::dropOf(const Context* context) {
  dropIf([&](const Pending& meeting) { return meeting.madeIn(context); });
}

void PendingTable::dropAll() {
  dropIf([](const Pending&) { return true; });
}

size_t PendingTable::size() {
  const std::lock_guard lock(mutex_);
  return meetings_.size();
}

void PendingTable::dropIf(const std::function<bool(const Pending&)>& unwanted) {
  std::vector<std::shared_ptr<Pending>> dropped;
  const std::lock_guard lock(mutex_);
  for (auto entry = meetings_.begin(); entry != meetings_.end();) {
    if (unwanted(*entry->second)) {
      dropped.push_back(std::move(entry->second));
      entry = meetings_.erase(entry);
    } else {
      ++entry;
    }
  }
}

}  // namespace weft::core
