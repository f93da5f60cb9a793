// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "providers/ofi/domain.h"

// The memory of a Device, registered in all of its domains under the same key: peers learn one key and may
// use it on any lane. A domain that is attached later gets all memory that lives. The Device owns it.
// Thread-safe. The lock is held across libfabric's registration calls; the data path never takes it.
namespace weft::ofi {

class Registry {
 public:
  // `virtualAddresses`: peers name a byte by its address here, and not by its offset (FI_MR_VIRT_ADDR).
  explicit Registry(bool virtualAddresses);

  struct Entry {
    uint64_t id = 0;
    uint64_t base = 0;
    uint64_t key = 0;
    void* descriptor = nullptr;  // of the only domain; null where there are several
  };
  Result<Entry> add(const MemoryDesc& desc);
  void remove(uint64_t id);

  // From hold() to as many release(), removed memory stays registered: the provider has works in flight that
  // may still use it.
  void hold();
  void release();

  // An error: the domain cannot register all memory that lives; it is then not attached.
  Status attach(Domain* domain);
  void detach(Domain* domain);

 private:
  const bool virtualAddresses_;
  const uint64_t firstKey_;
  std::mutex mutex_;
  uint64_t lastId_ = 0;
  size_t holders_ = 0;          // hold() without release()
  std::vector<uint64_t> held_;  // removed while it was held
  std::unordered_map<uint64_t, MemoryDesc> live_;
  std::vector<Domain*> domains_;
};

}  // namespace weft::ofi
