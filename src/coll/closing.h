// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "src/coll/backend.h"

// The end of a lost backend, on a thread of its own. Closing waits until the fabrics have nothing under way
// any more, and waits for a daemon that may hang; a data call of NCCL's must not wait for either. The ring
// that goes on without the backend owns it. take() is called once; any thread may ask over().
namespace weft::coll {

class Closing {
 public:
  Closing() = default;
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
  // Joins the thread. The wait is bounded by the deadlines of the backend's close(). OperationRing::close has
  // waited before.
  ~Closing() {
    if (thread_.joinable()) thread_.join();
  }

  // Begins closing and returns at once. Where no thread can be started, it closes before it returns.
  void take(std::unique_ptr<Backend> lost, const Clock& clock);
  // True: nothing of the backend writes to memory any more. True as long as nothing was taken.
  bool over() const { return over_.load(std::memory_order_acquire); }
  // Waits without a deadline of its own: close() of a backend has one.
  void wait(const Clock& clock) const {
    while (!over()) clock.sleep(Milliseconds(1));
  }

 private:
  std::atomic<bool> over_{true};  // release by the closing thread, acquire by over()
  std::thread thread_;
};

}  // namespace weft::coll
