// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/world/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "src/base/fnv.h"
#include "src/core/lock_order.h"

namespace weft::world {

namespace {

// A lock that is held over a step would be taken again by another task of the same thread.
void mustHoldNoLock(const Task& task) {
  if (core::mayLock(core::LockRank::opening)) return;
  std::fprintf(stderr, "world: %s gives its turn away with a lock held\n", task.name.c_str());
  std::abort();
}

}  // namespace

// A world that failed leaves tasks that have not ended: what lies on their stacks is lost.
Scheduler::~Scheduler() = default;

Task& Scheduler::start(std::string name, int rank, std::function<void()> body) {
  tasks_.push_back(std::make_unique<Task>(std::move(name), rank, std::move(body)));
  Task& task = *tasks_.back();
  put(task, now_ + Nanoseconds(random_.below(2000)));
  return task;
}

void Scheduler::at(TimePoint when, std::function<void()> event) {
  queue_.emplace(keyAt(when), Item{nullptr, std::move(event)});
}

void Scheduler::put(Task& task, TimePoint when) {
  task.due = keyAt(when);
  task.waits = true;
  queue_.emplace(task.due, Item{&task, nullptr});
}

void Scheduler::sleepUntil(TimePoint when) {
  Task& task = *current_;
  mustHoldNoLock(task);
  put(task, when);
  task.fiber.leave();
}

void Scheduler::wake(Task& task, TimePoint latest) {
  if (!task.waits || task.due.when <= latest) return;
  queue_.erase(task.due);
  put(task, latest);
}

void Scheduler::hold(int rank, TimePoint until) {
  for (const auto& task : tasks_)
    if (task->rank == rank) holdTask(*task, until);
}

void Scheduler::holdTask(Task& task, TimePoint until) {
  task.heldUntil = std::max(task.heldUntil, until);
}

void Scheduler::release(int rank) {
  for (const auto& task : tasks_) {
    if (task->rank != rank) continue;
    task->heldUntil = TimePoint{};
    wake(*task, now_);
  }
}

bool Scheduler::run(const std::function<bool()>& done, TimePoint latest, uint64_t steps) {
  while (!done()) {
    if (queue_.empty() || queue_.begin()->first.when > latest || steps_ >= steps) return false;
    step();
  }
  return true;
}

void Scheduler::step() {
  auto first = queue_.extract(queue_.begin());
  steps_++;
  now_ = std::max(now_, first.key().when);
  Task* task = first.mapped().task;
  if (!task) return first.mapped().event();
  task->waits = false;
  if (task->heldUntil > now_) return put(*task, task->heldUntil);
  journal_.mix(static_cast<uint64_t>(now_.time_since_epoch().count()) ^ fnv1a(task->name));
  current_ = task;
  task->fiber.run();
  current_ = nullptr;
}

}  // namespace weft::world
