// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "src/coll/backend.h"

// The end of a backend that is lost, on a thread of its own: closing waits until the fabrics have nothing
// under way any more, and for a daemon that may hang, while a data call of NCCL's must not wait. Owned by the
// ring that goes on without it. take() is called once; any thread may ask whether it is over.
namespace weft::coll {

class Closing {
 public:
  Closing() = default;
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
  // Bounded by the deadlines of the backend's own closing. A ring that was closed has waited already.
  ~Closing() {
    if (thread_.joinable()) thread_.join();
  }

  // Begins and returns at once; without a thread to be had, it closes here.
  void take(std::unique_ptr<Backend> lost, const Clock& clock);
  // Nothing of the backend writes to memory any more. True as long as nothing was taken.
  bool over() const { return over_.load(std::memory_order_acquire); }
  void wait(const Clock& clock) const {
    while (!over()) clock.sleep(Milliseconds(1));
  }

 private:
  std::atomic<bool> over_{true};
  std::thread thread_;
};

}  // namespace weft::coll
