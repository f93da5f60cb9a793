// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/random.h"
#include "tools/world/fiber.h"
#include "tools/world/journal.h"

// The one thing that lets anything happen in a world. Tasks are fibers; each sleeps until some time, and the
// one that is due first runs next. Of two that are due at once a draw decides, and how long a step takes is
// drawn, too, so that a seed is an interleaving. Time stands still while a task runs and jumps to the next
// that is due: nobody waits for anything real. Used by one thread.
namespace weft::world {

struct SchedulerKey {
  TimePoint when;
  uint64_t draw;
  uint64_t number;
  auto operator<=>(const SchedulerKey&) const = default;
};

// A thread of a rank. The scheduler owns it; others may look, and wake it.
struct Task {
  Task(std::string called, int of, std::function<void()> body)
      : name(std::move(called)), rank(of), fiber(std::move(body)) {}
  const std::string name;
  const int rank;
  Fiber fiber;
  SchedulerKey due{};
  bool waits = false;     // it is in the scheduler's queue
  TimePoint heldUntil{};  // it is stopped so long
  bool over() const { return fiber.over(); }
};

class Scheduler {
 public:
  Scheduler(uint64_t seed, Journal& journal) : random_(seed), journal_(journal) {}
  ~Scheduler();

  TimePoint now() const { return now_; }
  SeededRandom& random() { return random_; }
  Journal& journal() { return journal_; }
  Task* current() const { return current_; }  // null: an event, or nothing
  uint64_t steps() const { return steps_; }

  Task& start(std::string name, int rank, std::function<void()> body);
  void at(TimePoint when, std::function<void()> event);  // called between the tasks' steps
  void after(Nanoseconds time, std::function<void()> event) { at(now_ + time, std::move(event)); }

  // The current task:
  void sleepUntil(TimePoint when);
  void sleep(Nanoseconds time) { sleepUntil(now_ + time); }

  void wake(Task& task, TimePoint latest);  // it sleeps no longer than until then
  void hold(int rank, TimePoint until);     // all tasks of the rank, or longer if they are held so long
  void holdTask(Task& task, TimePoint until);
  void release(int rank);  // whatever holds it

  // Until `done`, or until the time has come or so many steps were taken: then false.
  bool run(const std::function<bool()>& done, TimePoint latest, uint64_t steps);
  const std::vector<std::unique_ptr<Task>>& tasks() const { return tasks_; }

 private:
  struct Item {
    Task* task = nullptr;
    std::function<void()> event;
  };

  SchedulerKey keyAt(TimePoint when) { return {when, random_.next(), ++lastNumber_}; }
  void put(Task& task, TimePoint when);
  void step();

  SeededRandom random_;
  Journal& journal_;
  TimePoint now_{std::chrono::seconds(1)};  // not zero, which means "never"
  uint64_t lastNumber_ = 0;
  uint64_t steps_ = 0;
  Task* current_ = nullptr;
  std::map<SchedulerKey, Item> queue_;
  std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace weft::world
