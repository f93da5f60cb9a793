// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <sys/epoll.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/fd.h"
#include "weft/result.h"

// An epoll set with timers (epoll(7)). A single thread uses it at a time: the control thread, or a thread
// that takes a turn; only wait() may run beside it. Watches and timers are members of their users and
// unregister themselves, also from within a callback.
namespace weft::control {

class EventLoop;

// Interest in a descriptor. It has to be stopped or destroyed before the descriptor is closed: a forked child
// may hold a copy of the descriptor, and then closing alone would leave it in the epoll set (epoll(7), Q6).
class Watch {
 public:
  Watch(EventLoop& loop, std::function<void(uint32_t events)> fn) : loop_(loop), fn_(std::move(fn)) {}
  ~Watch() { stop(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Begins to watch, or watches another descriptor. An error: the kernel's limit on watches.
  Status start(int fd, uint32_t events);
  // Replaces the events that are asked for; nothing while it is stopped.
  void want(uint32_t events);
  void stop();
  const std::function<void(uint32_t)>& callback() const { return fn_; }
  // The part of `events` that is still asked for. `events` may be older than the last want().
  uint32_t wanted(uint32_t events) const { return events & (events_ | EPOLLERR | EPOLLHUP); }

 private:
  EventLoop& loop_;
  std::function<void(uint32_t)> fn_;
  int fd_ = -1;  // -1: stopped
  uint32_t events_ = 0;
  uint64_t token_ = 0;  // the loop's name for this watch, never used twice
};

// A deadline. It fires once for each at(), never early. Timers of one time fire in the order in which they
// were set.
// Cancelled by its destructor. A callback may set or destroy its own timer.
class Timer {
 public:
  Timer(EventLoop& loop, std::function<void()> fn) : loop_(loop), fn_(std::move(fn)) {}
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void at(TimePoint when);
  void after(Nanoseconds delay);
  void cancel();
  TimePoint when() const { return when_; }
  const std::function<void()>& callback() const { return fn_; }

 private:
  EventLoop& loop_;
  std::function<void()> fn_;
  TimePoint when_{};    // zero: not armed
  uint64_t order_ = 0;  // among all timers ever armed
};

class EventLoop {
 public:
  static Result<std::unique_ptr<EventLoop>> create(const Clock& clock);
  EventLoop(Fd epoll, const Clock& clock) : epoll_(std::move(epoll)), clock_(clock) {}

  TimePoint now() const { return clock_.now(); }

  struct Events {
    std::array<epoll_event, 64> list;
    size_t count = 0;
  };
  // Waits until events come, or for that long. An event that another turn has dealt with meanwhile does no
  // harm: dispatch() checks whether it is still asked for, and its callback finds nothing to read.
  Events wait(int milliseconds) const;
  // Runs the callbacks of the events, then those of all due timers.
  void dispatch(const Events& events);

  // Keeps an object that has ended until dropReleased(): code of the object may still be on the stack.
  // dropReleased() is called when no callback runs.
  void releaseLater(std::shared_ptr<void> object) { released_.push_back(std::move(object)); }
  void dropReleased() { std::exchange(released_, {}); }

  TimePoint nextTimer() const { return timers_.empty() ? TimePoint::max() : timers_.begin()->first.first; }
  int millisecondsUntil(TimePoint when) const;  // rounded up, so that the timer is due when the wait ends

 private:
  using TimerKey = std::pair<TimePoint, uint64_t>;  // the time, and the order among all timers ever armed

  void runTimers();

  Fd epoll_;
  const Clock& clock_;
  uint64_t lastToken_ = 0;
  std::unordered_map<uint64_t, Watch*> watches_;  // by token: an event of a stopped watch finds nothing
  std::map<TimerKey, Timer*> timers_;
  uint64_t lastArmed_ = 0;
  std::vector<std::shared_ptr<void>> released_;  // destroyed first: objects in it may have timers

 public:  // for Watch and Timer
  Result<uint64_t> add(int fd, uint32_t events, Watch* watch);
  void modify(int fd, uint32_t events, uint64_t token);
  void remove(int fd, uint64_t token);
  uint64_t arm(TimePoint when, Timer* timer) {
    timers_.emplace(TimerKey(when, ++lastArmed_), timer);
    return lastArmed_;
  }
  void disarm(TimePoint when, uint64_t order) { timers_.erase({when, order}); }
};

}  // namespace weft::control
