// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>

#include "tools/world/scheduler.h"

// A processor that the threads of several ranks share. A thread that has something to do works as long as it
// goes on; one that finds nothing yields, and the next in line looks. So while nobody works, looks go round,
// one after the other, and who is next to look when something is new for him works. Looks in vain are not
// steps of the scheduler: who finds something, and when, is computed. Owned by the simulation; tasks of one
// thread.
namespace weft::sim {

class Processor {
 public:
  // Of a thread: it is new to the processor, stands in line, or works.
  struct Place {
    enum class State : uint8_t { away, inLine, works };
    world::Task* task = nullptr;
    State state = State::away;
    TimePoint finds{};  // in line: from when on it finds something
  };
  // How long a look takes with the yield behind it, alone on the processor, or among others.
  struct Looks {
    Nanoseconds alone{};
    Nanoseconds amongOthers{};
  };

  Processor(world::Scheduler& scheduler, const Looks& looks) : scheduler_(scheduler), looks_(looks) {}

  // The task of the place: its thread finds nothing before `finds`, and sleeps until it works. The time for
  // which the processor did nothing before that but look.
  Nanoseconds wait(Place& place, TimePoint finds);
  // Of a place in line: something is new for it from then on.
  void tell(Place& place, TimePoint when);
  // The thread that works sleeps without the processor from now on, or is over.
  void leave(Place& place);

 private:
  Nanoseconds look() const { return line_.size() > 1 ? looks_.amongOthers : looks_.alone; }
  void join(Place& place);
  void choose();
  TimePoint turnOf(size_t index) const;
  void take(Place& place);

  world::Scheduler& scheduler_;
  const Looks looks_;
  std::deque<Place*> line_;  // in the order in which they look, the first at looksFrom_
  Place* works_ = nullptr;   // while it does nobody looks
  TimePoint looksFrom_{};    // of the looks whose order is that of the line
  TimePoint looksSince_{};   // since when nobody has worked
  Place* next_ = nullptr;    // will work, at
  TimePoint nextAt_{};
};

}  // namespace weft::sim
