// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/fault/control.h"
#include "src/core/net.h"
#include "tests/world/end.h"
#include "tests/world/member.h"
#include "tests/world/plan.h"
#include "tools/world/control_net.h"
#include "tools/world/scheduler.h"

// One rank's process: its Net over a fabric of its own, a context for each communicator, and for each of them
// a task in the place of NCCL's thread, which moves all ends that the rank has there. The world owns it.
namespace weft::world {

// The clock of a rank: all waiting gives the turn away, and takes a little longer than was asked for.
class WorldClock final : public Clock {
 public:
  explicit WorldClock(Scheduler& scheduler) : scheduler_(scheduler) {}
  TimePoint now() const override { return scheduler_.now(); }
  void sleep(Nanoseconds time) const override;
  void yield() const override;

 private:
  Scheduler& scheduler_;
};

// How many threads have all of their messages, where all wait for each other before they close.
struct Rest {
  int here = 0;
};

// The surroundings of all ranks.
struct RankWorld {
  Scheduler& scheduler;
  ControlNet& control;
  PlayedTcp& tcp;
  Ground& ground;
  const WorldPlan& plan;
  std::vector<Meeting>& meetings;
  std::vector<Gathering>& gatherings;
  Rest& rest;
};

class Rank {
 public:
  Rank(const RankWorld& world, int number);

  Status start();
  bool finished() const { return running_ == 0; }
  int number() const { return number_; }
  fault::FaultControl* faults() { return faults_.get(); }  // null: the fabric cannot be hurt
  void abort(size_t flow);
  void misuse(size_t flow);
  void withdraw(size_t flow);
  void turnAway(size_t flow);
  void refuseMemory(uint64_t after) { refusal_ = {after, true}; }
  void leave(size_t group);
  void startAnother(size_t group);
  const std::vector<std::unique_ptr<End>>& ends() const { return ends_; }
  const std::vector<std::unique_ptr<Member>>& members() const { return members_; }

 private:
  std::unique_ptr<Transport> makeFabric();
  void thread(int communicator);
  void collectiveThread(size_t group);
  void threadEnds();
  void occupy();
  const End* anyRunning() const;
  void move(const std::vector<End*>& ends);
  bool stepOne(std::vector<End*>& going);
  void rest(const std::vector<End*>& ends);
  void pollOnce(const std::vector<End*>& ends) const;
  void closeAll(std::vector<End*> ends);

  Scheduler& scheduler_;
  ControlNet& control_;
  PlayedTcp& tcp_;
  Ground& ground_;
  const WorldPlan& plan_;
  std::vector<Meeting>& meetings_;
  std::vector<Gathering>& gatherings_;
  Rest& rest_;
  const int number_;
  const WorldClock clock_;
  std::shared_ptr<fault::FaultControl> faults_;
  std::shared_ptr<core::Net> net_;
  int device_ = 0;
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::unique_ptr<Member>> members_;  // by group; null: its thread has not begun
  Refusal refusal_;
  int running_ = 0;  // tasks of NCCL's threads
};

}  // namespace weft::world
