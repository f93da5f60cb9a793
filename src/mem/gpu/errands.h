// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "src/base/reserve.h"
#include "src/mem/gpu/driver.h"

// Calls of the driver that may wait until a GPU is idle: those that map and free memory. The kernel that runs
// may wait for the thread that polls, so a thread of the owner's makes them, one after the other and in the
// order in which they were asked for: what is freed at an address is gone before other memory is mapped
// there. A device or a team of ranks owns it. Any thread may
// ask; the thread begins with the first errand.
namespace weft::mem::gpu {

class Errands {
 public:
  explicit Errands(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {}
  // Waits for the errands that were asked for. The last lane is gone by then, so no kernel waits for it.
  ~Errands();
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  // Where the process gets no further thread, the caller carries it out.
  void ask(std::function<void()> errand);
  // Destroys it there.
  template <class Gone>
  void destroy(Gone gone) {
    const MustNotFail freeing;
    auto kept = std::make_shared<Gone>(std::move(gone));
    ask([kept = std::move(kept)]() mutable { kept.reset(); });
  }

 private:
  void run();

  const std::shared_ptr<const Driver> driver_;  // outlives what the errands destroy
  std::mutex mutex_;                            // everything below
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace weft::mem::gpu
