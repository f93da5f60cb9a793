// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/mailbox.h"

#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>

#include "src/base/process.h"

// The queue of closures, and the eventfd that tells of it.
namespace weft::control {

Result<std::shared_ptr<Mailbox>> Mailbox::create() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) {
    return Error(Code::resources, "creating the control thread's eventfd",
                 "raise the limit on open files (ulimit -n)", errno);
  }
  return std::make_shared<Mailbox>(std::move(event));
}

bool Mailbox::post(Work work) {
  if (inForkedChild()) return false;  // the parent may have held the lock when it forked
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  queue_.push_back(std::move(work));
  // Further closures need no signal: the control thread takes all of them at once.
  if (queue_.size() == 1) signalLocked();
  return true;
}

void Mailbox::signal() {
  if (inForkedChild()) return;
  std::lock_guard lock(mutex_);
  if (!closed_) signalLocked();
}

void Mailbox::signalLocked() {
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);  // fails only when the counter is full, which wakes as well
}

std::vector<Mailbox::Work> Mailbox::take() {
  std::lock_guard lock(mutex_);
  uint64_t count = 0;
  (void)!::read(event_.get(), &count, sizeof count);
  return std::exchange(queue_, {});
}

// The dropped closures are destroyed outside the lock: a closure may own the last reference to an object
// whose destructor posts.
void Mailbox::close() {
  std::vector<Work> dropped;  // declared before the lock, so destroyed after it
  std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(queue_);
  event_.reset();
}

}  // namespace weft::control
