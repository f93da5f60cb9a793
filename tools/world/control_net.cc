// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/world/control_net.h"

#include <algorithm>

#include "tools/world/hub.h"

namespace weft::world {

ControlNet::ControlNet(Scheduler& scheduler, int ranks, Nanoseconds latency)
    : ControlNet(scheduler, ranks, ControlCosts{latency, latency, {}, {}}) {}

ControlNet::ControlNet(Scheduler& scheduler, int ranks, const ControlCosts& costs)
    : scheduler_(scheduler),
      costs_(costs),
      dead_(static_cast<size_t>(ranks)),
      stoppedUntil_(static_cast<size_t>(ranks)) {}

Result<std::shared_ptr<control::Hub>> ControlNet::makeHub(int rank, control::HubOptions options) {
  auto hub = std::make_shared<WorldHub>(*this, rank, ++lastHub_, std::move(options));
  hubs_[hub->number()] = hub.get();
  hub->begin();
  return std::shared_ptr<control::Hub>(std::move(hub));
}

void ControlNet::leave(const WorldHub& hub) {
  hubs_.erase(hub.number());
}

WorldHub* ControlNet::find(uint64_t hub) const {
  const auto found = hubs_.find(hub);
  return found == hubs_.end() ? nullptr : found->second;
}

WorldHub* ControlNet::find(const control::Incarnation& process) const {
  WorldHub* const hub = find(WorldHub::numberOf(process));
  return hub && hub->incarnation() == process ? hub : nullptr;
}

// Mail of one pair keeps its order. A cut holds it up, as TCP repeats what it lost and a link is resumed;
// what the dead send, or are sent, is lost.
void ControlNet::carry(const WorldHub& from, uint64_t to, std::function<void(WorldHub&)> mail) {
  const WorldHub* target = find(to);
  if (!target || isDead(from.rank()) || isDead(target->rank())) return;
  const TimePoint cut = cutUntil(from.rank(), target->rank());
  if (cut == kNever) return;
  carried_++;
  const auto jitter =
      costs_.jitter.count() > 0 ? scheduler_.random().below(static_cast<uint64_t>(costs_.jitter.count())) : 0;
  TimePoint arrival = std::max(scheduler_.now(), cut) + costs_.latency + Nanoseconds(jitter);
  TimePoint& last = lastArrival_[{from.number(), to}];
  if (last == TimePoint{} && lastArrival_.count({to, from.number()}) == 0) arrival += costs_.linking;
  if (costs_.perMail.count() > 0) {
    TimePoint& busy = busyUntil_[to];
    arrival = busy = std::max(arrival, busy) + costs_.perMail;
  }
  arrival = last = std::max(arrival, last + Nanoseconds(1));
  scheduler_.at(arrival, [this, to, mail = std::move(mail)]() mutable {
    WorldHub* hub = find(to);
    if (hub && !isDead(hub->rank())) hub->take(std::move(mail));
  });
}

uint64_t ControlNet::linkBetween(uint64_t a, uint64_t b) {
  uint64_t& link = links_[pairOf(a, b)];
  if (link == 0) link = ++lastLink_;
  return link;
}

std::map<int, size_t> ControlNet::linksByRank() const {
  std::map<int, size_t> links;
  for (const auto& [pair, link] : links_)
    for (const uint64_t number : {pair.first, pair.second})
      if (const WorldHub* hub = find(number)) links[hub->rank()]++;
  return links;
}

void ControlNet::endLink(uint64_t a, uint64_t b, uint64_t link) {
  const auto found = links_.find(pairOf(a, b));
  if (found != links_.end() && found->second == link) links_.erase(found);
}

TimePoint ControlNet::cutUntil(int a, int b) const {
  const auto found = cuts_.find(pairOf(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  return found == cuts_.end() ? TimePoint{} : found->second;
}

void ControlNet::kill(int rank) {
  dead_[static_cast<size_t>(rank)] = true;
  for (const auto& [number, hub] : hubs_) {
    if (isDead(hub->rank()) || cutUntil(hub->rank(), rank) == kNever) continue;
    const TimePoint noticed = std::max(scheduler_.now(), cutUntil(hub->rank(), rank)) +
                              Nanoseconds(1'000'000 + scheduler_.random().below(30'000'000));
    scheduler_.at(noticed, [this, rank, to = number] {
      if (WorldHub* there = find(to))
        there->take(
            [rank](WorldHub& here) { here.rankGone(rank, "its process has ended: connection refused"); });
    });
  }
}

void ControlNet::isolate(int rank) {
  for (const auto& [number, hub] : hubs_)
    if (hub->rank() == rank)
      hub->take([](WorldHub& here) { here.allGone("this process is dead, and is being taken down"); });
}

void ControlNet::stop(int rank, TimePoint until) {
  TimePoint& stopped = stoppedUntil_[static_cast<size_t>(rank)];
  stopped = std::max(stopped, until);
  scheduler_.hold(rank, until);
}

void ControlNet::goOn(int rank) {
  stoppedUntil_[static_cast<size_t>(rank)] = scheduler_.now();
  scheduler_.release(rank);
}

void ControlNet::cut(int a, int b, TimePoint until) {
  cuts_[pairOf(static_cast<uint64_t>(a), static_cast<uint64_t>(b))] = until;
}

}  // namespace weft::world
