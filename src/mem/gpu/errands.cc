// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/gpu/errands.h"

#include <utility>

#include "src/base/process.h"

// The thread, and its list.
namespace weft::mem::gpu {

// A forked child has no such thread and must not call CUDA, so what waits there is leaked.
Errands::~Errands() {
  if (inForkedChild()) {
    (void)std::make_unique<std::thread>(std::move(thread_)).release();
    (void)std::make_unique<std::deque<std::function<void()>>>(std::move(waiting_)).release();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Errands::ask(std::function<void()> errand) {
  const MustNotFail freeing;
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable() && !inForkedChild()) {
      if (auto started = startThread("weft-gpu", [this] { run(); })) thread_ = std::move(*started);
    }
    if (thread_.joinable() || inForkedChild()) {
      waiting_.push_back(std::move(errand));
      changed_.notify_one();
      return;
    }
  }
  errand();
}

void Errands::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next();
    next = nullptr;
    lock.lock();
  }
}

}  // namespace weft::mem::gpu
