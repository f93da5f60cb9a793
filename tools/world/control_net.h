// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/control/hub.h"
#include "tools/world/scheduler.h"

// The control network of a world: what lies between the hubs of its ranks. It carries mail in order and with
// a delay, and knows what hurts it: ranks that are dead or stopped, and pairs of ranks whose path is cut.
// Like the network of a cluster it tells nobody; hubs find out by silence. Used by one thread.
namespace weft::world {

class WorldHub;

constexpr TimePoint kNever = TimePoint::max();

// The price of a mail's way. The first mail between two hubs waits until their link is made.
struct ControlCosts {
  Nanoseconds latency{};
  Nanoseconds jitter{};  // below so much is drawn for each mail
  Nanoseconds linking{};
  Nanoseconds perMail{};  // that the receiving hub is busy with each
};

class ControlNet {
 public:
  ControlNet(Scheduler& scheduler, int ranks, Nanoseconds latency);
  ControlNet(Scheduler& scheduler, int ranks, const ControlCosts& costs);

  Result<std::shared_ptr<control::Hub>> makeHub(int rank, control::HubOptions options);

  // Hurts, from the world:
  void kill(int rank);     // its kernel refuses from now on
  void isolate(int rank);  // a dead one, so that it can be taken down: it learns that all others are gone
  void stop(int rank, TimePoint until);  // or longer, if something else stops it so long
  void goOn(int rank);
  void cut(int a, int b, TimePoint until);

  // For hubs:
  void carry(const WorldHub& from, uint64_t to, std::function<void(WorldHub&)> mail);
  uint64_t linkBetween(uint64_t a, uint64_t b);
  void endLink(uint64_t a, uint64_t b, uint64_t link);
  WorldHub* find(uint64_t hub) const;
  WorldHub* find(const control::Incarnation& process) const;
  void leave(const WorldHub& hub);
  bool isDead(int rank) const { return dead_[static_cast<size_t>(rank)]; }
  bool isStopped(int rank) const { return stoppedUntil_[static_cast<size_t>(rank)] > scheduler_.now(); }
  bool isCut(int a, int b) const { return cutUntil(a, b) > scheduler_.now(); }
  void heard(int rank) const {  // its hub has handled mail
    if (hearer_) hearer_(rank);
  }
  Scheduler& scheduler() { return scheduler_; }
  size_t hubs() const { return hubs_.size(); }
  uint64_t carried() const { return carried_; }  // mails so far
  std::map<int, size_t> linksByRank() const;
  // Called when a hub has handled mail.
  void hearBy(std::function<void(int rank)> hearer) { hearer_ = std::move(hearer); }

 private:
  TimePoint cutUntil(int a, int b) const;
  static std::pair<uint64_t, uint64_t> pairOf(uint64_t a, uint64_t b) { return std::minmax(a, b); }

  Scheduler& scheduler_;
  const ControlCosts costs_;
  std::function<void(int)> hearer_;
  uint64_t carried_ = 0;
  std::map<uint64_t, TimePoint> busyUntil_;  // hubs, with the mail that came so far
  uint64_t lastHub_ = 0;
  uint64_t lastLink_ = 0;
  std::map<uint64_t, WorldHub*> hubs_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> links_;         // the one that is in force
  std::map<std::pair<uint64_t, uint64_t>, TimePoint> lastArrival_;  // from, to
  std::vector<bool> dead_;
  std::vector<TimePoint> stoppedUntil_;
  std::map<std::pair<uint64_t, uint64_t>, TimePoint> cuts_;  // by rank
};

}  // namespace weft::world
