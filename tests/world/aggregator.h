// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/agg/daemon.h"
#include "tests/world/host.h"

// An aggregation daemon of a world: a process of its own (host.h) with the product's daemon in it, whose
// threads and errands are tasks. Its main task begins and ends it. The world owns it.
namespace weft::world {

class Aggregator {
 public:
  // `place`: among the plan's daemons; its process comes after those of the ranks.
  Aggregator(Scheduler& scheduler, const WorldPlan& plan, size_t place);

  Status start(ControlNet& control, PlayedTcp& tcp);
  bool serves() const { return state_ == State::serves; }
  bool finished() const { return state_ == State::over; }
  void dismiss() { dismissed_ = true; }  // no rank needs it any more
  int number() const { return host_.number(); }
  fault::FaultControl* faults() const { return host_.faults(); }
  const std::string& complaint() const { return complaint_; }  // empty: none

 private:
  enum class State : uint8_t { begins, serves, over };
  void live();
  void end(agg::Daemon& daemon) const;
  void pause() const { host_.clock().sleep(std::chrono::milliseconds(1)); }
  agg::DaemonOptions options() const;

  Scheduler& scheduler_;
  const WorldPlan& plan_;
  const size_t place_;
  Host host_;
  const WorldThreads threads_;
  State state_ = State::begins;
  bool dismissed_ = false;
  std::string complaint_;
};

}  // namespace weft::world
