// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "providers/fault/control.h"
#include "tests/protocol/random_traffic.h"

// Random traffic while rails are killed at random, again and again: nothing is lost, doubled or written
// behind anybody's back. A kill counts only when it hit unfinished works and something was written again for
// it.
namespace weft::test {

struct StormOptions {
  std::string name;
  WorldOptions world;  // its transports inject faults
  std::shared_ptr<fault::FaultControl> controls[2];
  bool overlapping = false;          // another rail may be killed before the last one is back
  std::function<void(World&)> tick;  // moves the clock, a little a round
  std::function<bool()> expired = [] { return false; };
  size_t least = 0;  // kills to count at least, should it expire
};

class Storm {
 public:
  Storm(StormOptions options, uint64_t seed)
      : options_(std::move(options)), random_(seed), world_(options_.world) {
    for (int i = 0; i < 3; i++)
      flows_.push_back(std::make_unique<Traffic>(world_, i % 2, seed + static_cast<uint64_t>(i)));
  }

  void run(size_t kills) {
    while (counted_ < kills && rounds_ < kills * kRoundsPerKill && !options_.expired()) {
      Traffic& flow = *flows_[random_.below(flows_.size())];
      if (random_.below(8) == 0 && flow.planned() < kMostPlanned) flow.plan();
      round();
      disturb();
    }
    INFO(rounds_ << " rounds, " << tried_ << " kills");
    CHECK(counted_ >= (options_.expired() ? options_.least : kills));
    CHECK(writtenAgain() >= counted_);
    for (auto& control : options_.controls) control->clear();
    const auto idle = [](const auto& flow) { return flow->idle(); };
    for (size_t i = 0; i < kRoundsToEnd && !std::all_of(flows_.begin(), flows_.end(), idle); i++) round();
    for (const auto& flow : flows_) {
      INFO(flow->state());
      CHECK(flow->idle());
      CHECK(flow->untouched());
      CHECK_FALSE(flow->sender().failed());
      CHECK_FALSE(flow->receiver().failed());
    }
    for (int side = 0; side < 2; side++) CHECK(counters(side).foreignNotes == 0);
    std::printf("%-42s %5zu kills of %zu counted; again: %llu segments, %llu eager, %llu CTS\n",
                options_.name.c_str(), counted_, tried_, total(&core::EngineCounters::segmentsAgain),
                total(&core::EngineCounters::eagerAgain), total(&core::EngineCounters::ctsAgain));
  }

 private:
  static constexpr size_t kRoundsPerKill = 20'000;
  static constexpr size_t kRoundsToNotice = 20'000;
  static constexpr size_t kRoundsToEnd = 400'000;  // on sockets some ten microseconds each
  static constexpr size_t kMostPlanned = 32;       // groups, or a fast machine plans more than it moves
  static constexpr fault::FaultKind kKinds[] = {fault::FaultKind::kill, fault::FaultKind::killLate,
                                                fault::FaultKind::killSilent, fault::FaultKind::error};

  const core::EngineCounters& counters(int side) { return world_.side(side).engine->counters(); }
  unsigned long long total(uint64_t core::EngineCounters::*what) {
    return counters(0).*what + counters(1).*what;
  }
  uint64_t writtenAgain() {
    return total(&core::EngineCounters::segmentsAgain) + total(&core::EngineCounters::eagerAgain);
  }

  void round() {
    rounds_++;
    for (auto& flow : flows_) flow->step();
    if (random_.below(4) == 0) world_.deliverMessages();
    options_.tick(world_);
    if (rounds_ % 4 == 0) world_.watch(0), world_.watch(1);
  }

  // Lanes that both ends could use now.
  size_t usable() {
    core::Peering& here = flows_[0]->sender().peering();
    core::Peering& there = flows_[0]->receiver().peering();
    size_t n = 0;
    for (size_t i = 0; i < here.laneCount(); i++) n += here.lane(i).up() && there.lane(i).up();
    return n;
  }
  size_t lanes() { return flows_[0]->sender().peering().laneCount(); }

  void disturb() {
    if (armed_ && armed_->counts().hits == 0) {
      if (usable() < 2) drop();  // it would hit the last one
      return;
    }
    if (armed_ && total(&core::EngineCounters::lanesLeft) < leftBefore_ + 2) {
      // Not noticed yet, on both sides; or it hit a lane that was being left already, which nobody leaves
      // again.
      if (++waited_ > kRoundsToNotice) drop();
      return;
    }
    if (armed_ && !options_.overlapping && usable() < lanes()) return;
    if (armed_) account();
    if (usable() >= 2 && random_.below(400) == 0) arm();
  }

  void account() {
    // Where kills overlap, what was written again is only known in the end.
    counted_ += armed_->counts().works > 0 && (options_.overlapping || writtenAgain() > againBefore_);
    drop();
  }

  void drop() {
    armed_.reset();
    for (auto& control : options_.controls) control->clear();
  }

  void arm() {
    const size_t side = random_.below(2);
    fault::FaultRule rule;
    rule.kind = kKinds[random_.below(std::size(kKinds))];
    rule.op = random_.below(4) == 0 ? fault::FaultOp::any : fault::FaultOp::writeNotify;
    if (random_.below(8) == 0 && rule.kind != fault::FaultKind::error)
      rule.op = fault::FaultOp::poll;  // under all lanes
    rule.rail = static_cast<int>(random_.below(static_cast<size_t>(options_.world.rails[side])));
    rule.nth = 1 + random_.below(8);
    rule.window = 1 + static_cast<uint32_t>(random_.below(4));
    againBefore_ = writtenAgain();
    leftBefore_ = total(&core::EngineCounters::lanesLeft);
    armed_ = options_.controls[side]->add(rule);
    waited_ = 0;
    tried_++;
  }

  StormOptions options_;
  SeededRandom random_;
  World world_;
  std::vector<std::unique_ptr<Traffic>> flows_;
  std::shared_ptr<fault::RuleState> armed_;
  uint64_t againBefore_ = 0, leftBefore_ = 0;
  size_t rounds_ = 0, tried_ = 0, counted_ = 0, waited_ = 0;
};

}  // namespace weft::test
