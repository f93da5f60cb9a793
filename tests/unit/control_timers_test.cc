// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <optional>
#include <string>

#include "src/control/event_loop.h"
#include "tests/support/catch.h"

// The order in which a control thread's timers fire.
using namespace weft;
using namespace weft::control;

namespace {

// Timers at rising addresses, and the names of those that fired.
class Clockwork {
 public:
  Clockwork() : loop_(EventLoop::create(clock_).take()) {
    for (size_t i = 0; i < timers_.size(); i++)
      timers_[i].emplace(*loop_, [this, i] { fired_ += static_cast<char>('a' + i); });
  }
  Timer& timer(size_t i) { return *timers_[i]; }
  TimePoint in(Milliseconds time) const { return clock_.now() + time; }
  std::string firedAfter(Milliseconds time) {
    clock_.advance(time);
    loop_->dispatch({});
    return std::exchange(fired_, {});
  }

 private:
  FakeClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::string fired_;
  std::array<std::optional<Timer>, 4> timers_;
};

}  // namespace

TEST_CASE("timers of one time fire in the order in which they were set") {
  Clockwork work;
  const TimePoint when = work.in(Milliseconds(10));
  for (const size_t i : {2, 0, 3, 1}) work.timer(i).at(when);
  CHECK(work.firedAfter(Milliseconds(9)).empty());
  CHECK(work.firedAfter(Milliseconds(1)) == "cadb");
}

TEST_CASE("a timer that is set again comes after those of its time") {
  Clockwork work;
  const TimePoint when = work.in(Milliseconds(10));
  for (const size_t i : {0, 1, 2}) work.timer(i).at(when);
  work.timer(0).at(when);
  work.timer(1).cancel();
  work.timer(3).at(work.in(Milliseconds(5)));
  CHECK(work.firedAfter(Milliseconds(20)) == "dca");
}
