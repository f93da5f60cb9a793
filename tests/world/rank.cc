// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/rank.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "src/core/engine_entry.h"
#include "src/core/runtime.h"

namespace weft::world {

namespace {

constexpr uint64_t kStepNs = 900;  // most that a call of NCCL's takes

}  // namespace

Rank::Rank(const RankWorld& world, int number)
    : scheduler_(world.scheduler),
      control_(world.control),
      tcp_(world.tcp),
      ground_(world.ground),
      plan_(world.plan),
      meetings_(world.meetings),
      gatherings_(world.gatherings),
      rest_(world.rest),
      number_(number),
      host_(world.scheduler, world.plan, number) {}

Status Rank::start() {
  Config config = plan_.config;
  if (!plan_.daemons.empty()) config.aggd = plan_.daemons.front().address;
  TRY(host_.open(control_, tcp_, config));
  for (int i = 0; i < plan_.communicators; i++) {
    running_++;
    scheduler_.start(format("thread %d.%d", number_, i), number_, [this, i] { thread(i); });
  }
  members_.resize(plan_.groups.size());
  for (size_t i = 0; i < plan_.groups.size(); i++) {
    running_++;
    scheduler_.start(format("collective %d.%zu", number_, i), number_, [this, i] { collectiveThread(i); });
  }
  if (plan_.occupiedFor.count() > 0)
    scheduler_.start(format("occupier %d", number_), number_, [this] { occupy(); });
  return {};
}

const End* Rank::anyRunning() const {
  for (const auto& end : ends_)
    if (end->state() == EndState::running) return end.get();
  return nullptr;
}

// A thread that loses its processor inside an engine, as the control thread may: nobody else gets in
// meanwhile.
void Rank::occupy() {
  while (!finished()) {
    const uint64_t most = static_cast<uint64_t>(plan_.occupiedFor.count());
    scheduler_.sleep(Nanoseconds(most + scheduler_.random().below(4 * most)));
    const End* running = finished() ? nullptr : anyRunning();
    if (!running) continue;
    const core::ContextRef context = running->context();
    const auto runtime = host_.net().runtime();
    if (!runtime) continue;
    const auto engine = (*runtime)->engineFor(context, host_.device());
    if (!engine) continue;
    const core::EngineEntry in(**engine, core::EngineEntry::tryOnce);
    if (in) scheduler_.sleep(Nanoseconds(scheduler_.random().below(most)));
  }
}

// What the rank's process held goes with the last of its threads.
void Rank::threadEnds() {
  if (running_ == 1) host_.close();
  running_--;
}

void Rank::collectiveThread(size_t group) {
  core::ContextOptions options;
  options.perCommunicator = true;
  options.communicator = 8000 + group;
  core::ContextRef context = host_.net().openContext(std::move(options));
  const EndWorld world{scheduler_, host_.net(),         ground_,    context, host_.device(),
                       number_,    plan_.hurts.empty(), plan_.apart};
  context.reset();
  members_[group] =
      std::make_unique<Member>(world, plan_.groups[group], gatherings_[group], format("member %zu", group));
  members_[group]->live();
  threadEnds();
}

void Rank::thread(int communicator) {
  core::ContextOptions options;
  options.perCommunicator = true;
  options.communicator = 7000 + static_cast<uint64_t>(communicator);
  core::ContextRef context = host_.net().openContext(std::move(options));
  EndWorld world{scheduler_, host_.net(),         ground_,     context,  host_.device(),
                 number_,    plan_.hurts.empty(), plan_.apart, &refusal_};
  std::vector<End*> mine;
  for (size_t i = 0; i < plan_.flows.size(); i++) {
    const FlowPlan& flow = plan_.flows[i];
    if (flow.communicator != communicator) continue;
    if (flow.from == number_) ends_.push_back(makeSender(world, flow, meetings_[i]));
    if (flow.from == number_) mine.push_back(ends_.back().get());
    if (flow.to == number_) ends_.push_back(makeReceiver(world, flow, meetings_[i]));
    if (flow.to == number_) mine.push_back(ends_.back().get());
  }
  for (End* sender : mine)
    for (const End* receiver : mine)
      if (sender->flow().relays && sender->flow().from == number_ && receiver->flow().to == number_)
        sender->follow(receiver);
  world.context.reset();
  move(mine);
  if (plan_.rests) rest(mine);
  closeAll(mine);
  context.reset();
  threadEnds();
}

// A thread that finds nothing to do looks less and less often, as nothing else would let the time go on.
void Rank::move(const std::vector<End*>& ends) {
  std::vector<End*> going = ends;
  uint64_t idle = kStepNs;
  size_t inVain = 0;
  while (!going.empty()) {
    const bool stepped = stepOne(going);
    inVain = stepped ? 0 : inVain + 1;
    if (stepped) idle = kStepNs;
    if (inVain > 2 * going.size())
      idle = std::min(idle + idle / 8, static_cast<uint64_t>(plan_.idle.count()));
    scheduler_.sleep(Nanoseconds(50 + scheduler_.random().below(idle)));
  }
}

// An end that is over is closed at once, or with all others, as it comes.
bool Rank::stepOne(std::vector<End*>& going) {
  const auto which = scheduler_.random().below(going.size());
  End* end = going[which];
  const bool stepped = end->step();
  if (!end->over()) return stepped;
  going.erase(going.begin() + static_cast<ptrdiff_t>(which));
  if (end->state() == EndState::failed || (!plan_.rests && scheduler_.random().below(2) == 0)) end->close();
  return true;
}

// As NCCL's calls would.
void Rank::pollOnce(const std::vector<End*>& ends) const {
  const auto open = std::find_if(ends.begin(), ends.end(), [](const End* end) { return !end->closed(); });
  if (open == ends.end()) return;
  const auto runtime = host_.net().runtime();
  if (!runtime) return;
  const auto engine = (*runtime)->engineFor((*open)->context(), host_.device());
  if (!engine) return;
  const core::EngineEntry in(**engine, core::EngineEntry::tryOnce);
  if (in) (*engine)->progress();
}

void Rank::rest(const std::vector<End*>& ends) {
  constexpr int kPolls = 200;
  const auto poll = [&] {
    pollOnce(ends);
    scheduler_.sleep(std::chrono::microseconds(20));
  };
  rest_.here++;
  while (rest_.here < plan_.ranks * plan_.communicators) poll();
  for (int i = 0; i < kPolls; i++) poll();
  for (End* end : ends) end->checkRested();
  rest_.here++;
  while (rest_.here < 2 * plan_.ranks * plan_.communicators) poll();
}

void Rank::closeAll(std::vector<End*> ends) {
  while (!ends.empty()) {
    const auto which = scheduler_.random().below(ends.size());
    ends[which]->close();
    ends.erase(ends.begin() + static_cast<ptrdiff_t>(which));
    host_.clock().yield();
  }
}

void Rank::abort(size_t flow) {
  for (const auto& end : ends_)
    if (&end->flow() == &plan_.flows[flow]) end->abort();
}

void Rank::withdraw(size_t flow) {
  for (const auto& end : ends_)
    if (&end->flow() == &plan_.flows[flow]) end->withdraw();
}

void Rank::turnAway(size_t flow) {
  for (const auto& end : ends_)
    if (&end->flow() == &plan_.flows[flow]) end->turnAway();
}

void Rank::leave(size_t group) {
  if (members_[group]) members_[group]->leave();
}

void Rank::startAnother(size_t group) {
  if (members_[group]) members_[group]->startAnother();
}

void Rank::misuse(size_t flow) {
  for (const auto& end : ends_)
    if (&end->flow() == &plan_.flows[flow]) end->misuse();
}

}  // namespace weft::world
