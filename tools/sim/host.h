// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "providers/loop/card.h"
#include "providers/loop/options.h"
#include "src/core/engine.h"
#include "src/core/net.h"
#include "tools/sim/effort.h"
#include "tools/sim/fabric.h"
#include "tools/sim/processor.h"
#include "tools/world/control_net.h"
#include "tools/world/scheduler.h"

// A rank's process in a simulation: its Net over cards of its own, and a task in the place of NCCL's
// thread. The thread takes time for what it does, and when it finds nothing to do it sleeps until something
// comes, as looking in vain changes nothing. Owned by the simulation; tasks of one thread.
namespace weft::sim {

// The clock of a rank: all waiting gives the turn away.
class HostClock final : public Clock {
 public:
  explicit HostClock(world::Scheduler& scheduler) : scheduler_(scheduler) {}
  TimePoint now() const override { return scheduler_.now(); }
  void sleep(Nanoseconds time) const override { scheduler_.sleep(time); }
  void yield() const override { scheduler_.sleep(Nanoseconds(200)); }

 private:
  world::Scheduler& scheduler_;
};

// The surroundings of all hosts.
struct Site {
  world::Scheduler& scheduler;
  world::ControlNet& control;
  const Fabric& fabric;
  const Config& config;
  QueueDepths depths;
};

class Host {
 public:
  // Null: it has processors enough of its own, and none is counted.
  Host(const Site& site, int number, Processor* processor);

  Status open();       // the Net and a context
  Status connected();  // the first of its comms stands
  void close();        // after the last of its comms
  void run(std::function<void()> thread);
  int number() const { return number_; }
  core::Net& net() { return *net_; }
  const core::ContextRef& context() const { return context_; }
  int device() const { return device_; }
  size_t registeredBytes();  // by the protocol itself
  uint64_t found() const;    // so much its cards have told the engine

  TimePoint now() const { return site_.scheduler.now(); }

  // The thread has the processor from here on, where it shares one, until it sleeps for other reasons than
  // that it finds nothing.
  void enter();
  void leave();

  // The rates of its processor from here on, where the threads on it use so much memory together.
  void useMemory(uint64_t bytes);

  // The thread:
  void work(Effort* effort);    // bytes that it copied and reduced, which is owed from then on
  void prepareMessage();        // its time before it leaves
  void take(Effort* effort);    // the time for all else, which is owed until the next wait
  void pay();                   // what is owed
  bool idle(TimePoint latest);  // until something comes, or that time: then false
  // Anybody: something is new for the thread from then on.
  void tell(TimePoint when);

 private:
  static constexpr Nanoseconds kShortestPass{200};

  std::shared_ptr<Transport> makeFabric();
  void makePasses(Nanoseconds time);
  void sleepUntil(TimePoint latest);
  void move(const Effort& effort);

  const Site site_;
  const int number_;
  const HostClock clock_;
  std::shared_ptr<core::Net> net_;
  core::ContextRef context_;
  int device_ = 0;
  std::shared_ptr<core::Engine> engine_;
  std::shared_ptr<loop::LoopStats> stats_ = std::make_shared<loop::LoopStats>();
  Nanoseconds pass_ = kShortestPass;  // the next one's distance
  world::Task* task_ = nullptr;
  bool idles_ = false;
  Nanoseconds owed_{};
  Processor* const processor_;
  Processor::Place place_;
  tuner::HostRates rates_;  // of its processor, where it shares one
  std::vector<std::shared_ptr<loop::Card>> cards_;
  Nanoseconds
      looked_{};  // for that long it did nothing but look before the last time that it found something
  TimePoint busyUntil_{};  // while it idles
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> due_;
};

}  // namespace weft::sim
