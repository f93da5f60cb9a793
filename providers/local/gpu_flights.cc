// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/gpu_flights.h"

#include <algorithm>
#include <iterator>

#include "src/base/log.h"
#include "src/base/process.h"

// The list of copies under way, behind its lock.
namespace weft::local {

void GpuFlights::add(uint64_t key, const std::shared_ptr<const Flight>& flight,
                     std::shared_ptr<const void> keep) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({key, flight, std::move(keep)});
}

void GpuFlights::over(const std::shared_ptr<const Flight>& flight) {
  std::shared_ptr<const void> kept;  // destroyed when the lock is free again
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.flight == flight; });
  if (found == entries_.end()) return;
  kept = std::move(found->keep);
  entries_.erase(found);
}

// All copies that are over are taken, so that the list stays short. `more`: some of this key's are left.
std::vector<GpuFlights::Entry> GpuFlights::takeDone(uint64_t key, bool* more) {
  std::vector<Entry> done;
  const std::lock_guard lock(mutex_);
  const auto first = std::partition(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.flight->state() == Flight::State::underWay;
  });
  done.assign(std::make_move_iterator(first), std::make_move_iterator(entries_.end()));
  entries_.erase(first, entries_.end());
  *more = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  return done;
}

// A forked child must not call CUDA, and has no copies under way.
void GpuFlights::settle(uint64_t key, Milliseconds longest) {
  if (inForkedChild()) return;
  const TimePoint until = clock_.now() + longest;
  for (bool more = true; more;) {
    (void)takeDone(key, &more);
    if (!more) return;
    if (clock_.now() >= until) {
      WEFT_LOG(warn,
               "GPU memory is given back though a copy of it has not ended within %lld ms "
               "(WEFT_CLOSE_TIMEOUT); the GPU is stuck, `nvidia-smi` may say why",
               static_cast<long long>(longest.count()));
      return;
    }
    clock_.yield();
  }
}

}  // namespace weft::local
