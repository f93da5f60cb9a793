// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "providers/fault/control.h"
#include "src/base/threads.h"
#include "src/core/net.h"
#include "tests/world/plan.h"
#include "tools/world/control_net.h"
#include "tools/world/scheduler.h"

// One process of a world, a rank's or an aggregation daemon's: its Net over a fabric of its own, its clock,
// and its threads, which are tasks. Its owner closes it from a task of that process.
namespace weft::world {

// The clock of a process: all waiting gives the turn away, and takes a little longer than was asked for.
class WorldClock final : public Clock {
 public:
  // `yields`: a yield takes less than so long.
  explicit WorldClock(Scheduler& scheduler, Nanoseconds yields = Nanoseconds(900))
      : scheduler_(scheduler), yields_(yields) {}
  TimePoint now() const override { return scheduler_.now(); }
  void sleep(Nanoseconds time) const override;
  void yield() const override;

 private:
  Scheduler& scheduler_;
  const Nanoseconds yields_;
};

// The threads that the product starts in a process: tasks of its number.
class WorldThreads final : public Threads {
 public:
  WorldThreads(Scheduler& scheduler, const Clock& clock, int process)
      : scheduler_(scheduler), clock_(clock), process_(process) {}
  Result<std::unique_ptr<RunningThread>> start(const char* name, std::function<void()> body) const override;

 private:
  Scheduler& scheduler_;
  const Clock& clock_;
  const int process_;
};

class Host {
 public:
  Host(Scheduler& scheduler, const WorldPlan& plan, int number, Nanoseconds yields = Nanoseconds(900));

  // Makes the Net, with all rails of the process as one device.
  Status open(ControlNet& control, PlayedTcp& tcp, const Config& config);
  void close() { net_.reset(); }

  int number() const { return number_; }
  int device() const { return device_; }
  core::Net& net() const { return *net_; }
  const Clock& clock() const { return clock_; }
  fault::FaultControl* faults() const { return faults_.get(); }  // null: the fabric cannot be hurt

 private:
  std::unique_ptr<Transport> makeFabric(const Config& config);

  const WorldPlan& plan_;
  const int number_;
  const WorldClock clock_;
  std::shared_ptr<fault::FaultControl> faults_;
  std::shared_ptr<core::Net> net_;
  int device_ = 0;
};

}  // namespace weft::world
