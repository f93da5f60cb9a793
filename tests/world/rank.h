// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/world/end.h"
#include "tests/world/host.h"
#include "tests/world/member.h"
#include "tests/world/plan.h"

// One rank's process (host.h): a context for each communicator, and for each of them a task in the place of
// NCCL's thread, which moves all ends that the rank has there. The world owns it.
namespace weft::world {

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
  fault::FaultControl* faults() const { return host_.faults(); }  // null: the fabric cannot be hurt
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
  Host host_;
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::unique_ptr<Member>> members_;  // by group; null: its thread has not begun
  Refusal refusal_;
  int running_ = 0;  // tasks of NCCL's threads
};

}  // namespace weft::world
