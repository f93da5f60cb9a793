// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/mem/gpu/copies.h"

// The copies of a device's lanes that the GPU's driver has begun and not finished, by the region that each of
// them reads or writes. A copy goes on when its lane is gone. So the objects that a copy needs are kept here,
// and a region is not given back to its owner before its copies are over. The device owns it. Any thread.
namespace weft::local {

class GpuFlights {
 public:
  using Flight = mem::gpu::Driver::Copies::Flight;

  explicit GpuFlights(const Clock& clock) : clock_(clock) {}

  // `keep` must live until the copy is over. Called while the region is pinned, so that the thread which
  // deregisters the region sees the copy.
  void add(uint64_t key, const std::shared_ptr<const Flight>& flight, std::shared_ptr<const void> keep);
  // The copy is known to be over.
  void over(const std::shared_ptr<const Flight>& flight);

  // Called when no one may use the region any more. Waits for its copies, `longest` at most.
  void settle(uint64_t key, Milliseconds longest);

 private:
  struct Entry {
    uint64_t key;
    std::shared_ptr<const Flight> flight;
    std::shared_ptr<const void> keep;
  };
  // The caller destroys the entries without the lock, since that may unmap memory.
  std::vector<Entry> takeDone(uint64_t key, bool* more);

  const Clock& clock_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

// A base class of registered memory, destroyed after the key: no new copy can begin then, and the last ones
// are waited for.
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
