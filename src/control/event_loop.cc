// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/event_loop.h"

#include <algorithm>
#include <cerrno>

// epoll(7) and an ordered map of timers.
namespace weft::control {

Status Watch::start(int fd, uint32_t events) {
  stop();
  TRY(token_, loop_.add(fd, events, this));
  fd_ = fd;
  events_ = events;
  return {};
}

void Watch::want(uint32_t events) {
  if (fd_ < 0 || events == events_) return;
  events_ = events;
  loop_.modify(fd_, events, token_);
}

void Watch::stop() {
  if (fd_ < 0) return;
  loop_.remove(fd_, token_);
  fd_ = -1;
}

// Arming anew moves the timer behind all others of the same time.
void Timer::at(TimePoint when) {
  cancel();
  when_ = when;
  order_ = loop_.arm(when, this);
}

void Timer::after(Nanoseconds delay) {
  at(loop_.now() + delay);
}

void Timer::cancel() {
  if (when_ == TimePoint{}) return;
  loop_.disarm(when_, order_);
  when_ = {};
}

Result<std::unique_ptr<EventLoop>> EventLoop::create(const Clock& clock) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) {
    return Error(Code::resources, "creating the control thread's epoll set",
                 "raise the limit on open files (ulimit -n)", errno);
  }
  return std::make_unique<EventLoop>(std::move(epoll), clock);
}

Result<uint64_t> EventLoop::add(int fd, uint32_t events, Watch* watch) {
  const uint64_t token = ++lastToken_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Error(Code::resources, "watching a socket", "epoll_ctl failed", errno);
  }
  watches_[token] = watch;
  return token;
}

void EventLoop::modify(int fd, uint32_t events, uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd, uint64_t token) {
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(token);
}

// At most an hour: the kernel takes an int, and an early wake-up costs just one more round.
int EventLoop::millisecondsUntil(TimePoint when) const {
  constexpr int64_t kHourMs = 3'600'000;
  const auto left = std::chrono::ceil<Milliseconds>(when - now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kHourMs));
}

// An interrupted wait (EINTR) returns no events, as one that ran out.
EventLoop::Events EventLoop::wait(int milliseconds) const {
  Events events;
  const int n =
      epoll_wait(epoll_.get(), events.list.data(), static_cast<int>(events.list.size()), milliseconds);
  events.count = n > 0 ? static_cast<size_t>(n) : 0;
  return events;
}

// An event is looked up by the token of its watch, not by a pointer: an earlier callback may have stopped the
// watch, and a new watch may have the same descriptor.
void EventLoop::dispatch(const Events& events) {
  for (size_t i = 0; i < events.count; i++) {
    const epoll_event& event = events.list[i];
    const auto found = watches_.find(event.data.u64);
    if (found == watches_.end()) continue;
    const uint32_t wanted = found->second->wanted(event.events);
    if (wanted == 0) continue;
    const auto callback = found->second->callback();  // a copy: the watch may be destroyed while it runs
    callback(wanted);
  }
  runTimers();
}

// The time is read once. Timers that callbacks set for a time that has come meanwhile wait for the next
// round, so they cannot keep the thread from its other work.
void EventLoop::runTimers() {
  const TimePoint now = clock_.now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    Timer* timer = timers_.begin()->second;
    const auto callback = timer->callback();
    timer->cancel();
    callback();
  }
}

}  // namespace weft::control
