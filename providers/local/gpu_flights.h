// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/mem/gpu/copies.h"

// The copies of a device's lanes that the GPU's driver has begun and not done, by the region that each writes
// or reads. They go on when their lane is gone, so what they need is kept here, and a region is not given
// back to its owner before they are over. Any thread.
namespace weft::local {

class GpuFlights {
 public:
  using Flight = mem::gpu::Driver::Copies::Flight;

  explicit GpuFlights(const Clock& clock) : clock_(clock) {}

  // `keep`: what must not go before the copy is over. Called while the region is pinned, so that whoever
  // deregisters it sees the copy.
  void add(uint64_t key, const std::shared_ptr<const Flight>& flight, std::shared_ptr<const void> keep);
  void over(const std::shared_ptr<const Flight>& flight);

  // Nobody may use the region any more; what is under way with it is waited for, at most so long.
  void settle(uint64_t key, Milliseconds longest);

 private:
  struct Entry {
    uint64_t key;
    std::shared_ptr<const Flight> flight;
    std::shared_ptr<const void> keep;
  };
  // Entries that go are destroyed by the caller, who does not hold the lock then: it may unmap memory.
  std::vector<Entry> takeDone(uint64_t key, bool* more);

  const Clock& clock_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

// A base of what is registered, ahead of its key: the key goes first, and then this waits.
class SettledByFlights {
 public:
  SettledByFlights(std::shared_ptr<GpuFlights> flights, uint64_t key, Milliseconds longest)
      : flights_(std::move(flights)), key_(key), longest_(longest) {}
  ~SettledByFlights() { flights_->settle(key_, longest_); }
  SettledByFlights(const SettledByFlights&) = delete;
  SettledByFlights& operator=(const SettledByFlights&) = delete;

 private:
  const std::shared_ptr<GpuFlights> flights_;
  const uint64_t key_;
  const Milliseconds longest_;
};

}  // namespace weft::local
