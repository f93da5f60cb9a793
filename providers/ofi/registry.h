// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "providers/ofi/domain.h"

// The memory of one Device, kept registered in all of its domains under the same key: peers learn one key and
// may use it on any lane. A domain that comes later gets all memory that lives. Thread-safe; the lock is held
// across libfabric's registration calls and never taken by the data path.
namespace weft::ofi {

class Registry {
 public:
  // `virtualAddresses`: peers name a byte by its address here, not by its offset (FI_MR_VIRT_ADDR).
  explicit Registry(bool virtualAddresses);

  struct Entry {
    uint64_t id = 0;
    uint64_t base = 0;
    uint64_t key = 0;
    void* descriptor = nullptr;  // of the only domain, where there is one
  };
  Result<Entry> add(const MemoryDesc& desc);
  void remove(uint64_t id);

  // From hold() to as many release(), what is removed stays registered: the provider has works in flight that
  // may come back to it.
  void hold();
  void release();

  Status attach(Domain* domain);
  void detach(Domain* domain);

 private:
  const bool virtualAddresses_;
  const uint64_t firstKey_;
  std::mutex mutex_;
  uint64_t lastId_ = 0;
  size_t holders_ = 0;
  std::vector<uint64_t> held_;
  std::unordered_map<uint64_t, MemoryDesc> live_;
  std::vector<Domain*> domains_;
};

}  // namespace weft::ofi
