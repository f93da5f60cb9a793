// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/event_channel.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <sys/eventfd.h>
#include <type_traits>
#include <unistd.h>

namespace softefa {

EventChannel::EventChannel(ibv_context* context) {
  verbs_.context = context;
  verbs_.fd = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
}

EventChannel::~EventChannel() {
  ::close(verbs_.fd);
}

EventChannel* EventChannel::of(ibv_comp_channel* channel) {
  static_assert(std::is_standard_layout_v<EventChannel>);  // so that its first member is where it is
  return reinterpret_cast<EventChannel*>(channel);
}

void EventChannel::notify(ibv_cq* cq) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(cq);
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(verbs_.fd, &one, sizeof one);
}

ibv_cq* EventChannel::wait() {
  uint64_t one = 0;
  for (;;) {
    if (::read(verbs_.fd, &one, sizeof one) != sizeof one) return nullptr;
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) continue;  // its queue went away between the event and now
    ibv_cq* const cq = waiting_.front();
    waiting_.pop_front();
    return cq;
  }
}

void EventChannel::forget(const ibv_cq* cq) {
  const std::lock_guard lock(mutex_);
  std::erase(waiting_, cq);
}

}  // namespace softefa
