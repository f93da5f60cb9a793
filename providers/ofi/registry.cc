// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/registry.h"

#include <algorithm>

#include "src/base/random.h"

// Registering memory in all domains, or in none.
namespace weft::ofi {

namespace {

// Keys go in steps from a secret start. A key is the only protection of memory against any host that reaches
// the port. It is never used twice, so a late write to memory that is gone meets nothing.
constexpr uint64_t kKeyStep = 0x9e3779b97f4a7c15u;  // odd: 2^64 keys before one comes again

}  // namespace

Registry::Registry(bool virtualAddresses) : virtualAddresses_(virtualAddresses), firstKey_(randomU64()) {}

Result<Registry::Entry> Registry::add(const MemoryDesc& desc) {
  const std::lock_guard lock(mutex_);
  Entry entry;
  entry.id = ++lastId_;
  entry.base = virtualAddresses_ ? reinterpret_cast<uintptr_t>(desc.address) : 0;
  entry.key = firstKey_ + entry.id * kKeyStep;
  for (size_t i = 0; i < domains_.size(); i++) {
    auto registered = domains_[i]->registerMemory(entry.id, entry.key, desc);
    if (!registered) {
      for (size_t done = 0; done < i; done++) domains_[done]->deregister(entry.id);
      return registered.takeError();
    }
    entry.key = registered->key;
    entry.descriptor = registered->descriptor;
  }
  live_[entry.id] = desc;
  return entry;
}

void Registry::remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  live_.erase(id);
  if (holders_ > 0) return held_.push_back(id);
  for (Domain* domain : domains_) domain->deregister(id);
}

void Registry::hold() {
  const std::lock_guard lock(mutex_);
  holders_++;
}

void Registry::release() {
  const std::lock_guard lock(mutex_);
  if (--holders_ > 0) return;
  for (const uint64_t id : held_)
    for (Domain* domain : domains_) domain->deregister(id);
  held_.clear();
}

Status Registry::attach(Domain* domain) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, desc] : live_) {
    auto registered = domain->registerMemory(id, firstKey_ + id * kKeyStep, desc);
    if (!registered) return registered.takeError();
  }
  domains_.push_back(domain);
  return {};
}

void Registry::detach(Domain* domain) {
  const std::lock_guard lock(mutex_);
  domains_.erase(std::remove(domains_.begin(), domains_.end(), domain), domains_.end());
  domain->deregisterAll();
}

}  // namespace weft::ofi
