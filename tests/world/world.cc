// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/world.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "providers/loop/fabric.h"
#include "src/base/log.h"
#include "src/core/ending_log.h"
#include "tests/world/aggregator.h"
#include "tests/world/oracles.h"
#include "tests/world/played_inboxes.h"
#include "tests/world/rank.h"
#include "tests/world/refusals.h"

namespace weft::world {

namespace {

constexpr auto kLongest = std::chrono::seconds(120);  // of its own time
constexpr uint32_t kSlowPolls = 200;
constexpr uint64_t kMostSteps = 20'000'000;

// The world that log lines belong to: the log has one sink a process, and a world runs alone.
struct Listener {
  Scheduler* scheduler = nullptr;
  TimePoint began{};
  std::vector<Warning> warnings;
};
Listener* listening = nullptr;

void hear(LogLevel level, const char*, int, const char* message) {
  const Granting line;
  if (!listening) return;
  Scheduler& scheduler = *listening->scheduler;
  const int rank = scheduler.current() ? scheduler.current()->rank : -1;
  scheduler.journal().remark(scheduler.now(), rank, std::string("log: ") + message);
  if (level <= LogLevel::warn)
    listening->warnings.push_back({scheduler.now() - listening->began, rank, message});
}

class Listening {
 public:
  explicit Listening(Scheduler& scheduler) : before_(setLogSink(hear)) {
    listener_.scheduler = &scheduler;
    listener_.began = scheduler.now();
    listening = &listener_;
  }
  ~Listening() {
    listening = nullptr;
    setLogSink(before_);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  const std::vector<Warning>& warnings() const { return listener_.warnings; }

 private:
  Listener listener_;
  LogSink before_;
};

class World {
 public:
  World(const WorldPlan& plan, bool keepAll);
  Outcome run();

 private:
  std::string live();
  std::string begin();
  void hurt(const HurtPlan& hurt);
  void planHurts(bool onceFormed);
  bool hurtProcess(const HurtPlan& hurt, TimePoint until);
  void hurtRank(Rank& rank, const HurtPlan& hurt, TimePoint until);
  void tellJob(int lost);
  void hurtRail(const HurtPlan& hurt);
  void bringBack(int process);
  bool livingAreDone() const;
  fault::FaultControl* faultsOf(int process) const;
  std::string judgeAll() const;
  const End* endOf(const FlowPlan& flow, int rank, const char* which) const;
  std::string leftovers() const;
  std::string whoIsLeft() const;

  const WorldPlan& plan_;
  Journal journal_;
  Scheduler scheduler_;
  const std::weak_ptr<loop::Fabric> fabric_;
  ControlNet control_;
  PlayedTcp tcp_;
  PlayedInboxes inboxes_;
  Ground ground_;
  std::vector<Meeting> meetings_;
  std::vector<Gathering> gatherings_;
  Rest rest_;
  std::vector<std::unique_ptr<Aggregator>> daemons_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  // The living have ended before all that was planned was done. A rank that would be killed only now is taken
  // down already, and would stand still in it for ever.
  bool takingDown_ = false;
};

World::World(const WorldPlan& plan, bool keepAll)
    : plan_(plan),
      scheduler_(plan.seed * 2 + 1, journal_),
      control_(scheduler_, plan.processes(), plan.latency),
      tcp_(scheduler_, journal_, plan.tcp, plan.tcp.on || !plan.daemons.empty(), plan.seed),
      inboxes_(scheduler_),
      meetings_(plan.flows.size()),
      gatherings_(plan.groups.size()) {
  if (keepAll) journal_.keepAll();
  for (Gathering& gathering : gatherings_) gathering.handles.resize(static_cast<size_t>(plan.ranks));
  for (size_t i = 0; i < plan.daemons.size(); i++)
    daemons_.push_back(std::make_unique<Aggregator>(scheduler_, plan_, i));
  for (int i = 0; i < plan.ranks; i++)
    ranks_.push_back(std::make_unique<Rank>(
        RankWorld{scheduler_, control_, tcp_, ground_, plan_, meetings_, gatherings_, rest_}, i));
}

void World::planHurts(bool onceFormed) {
  for (const HurtPlan& planned : plan_.hurts)
    if (planned.onceFormed == onceFormed) scheduler_.after(planned.at, [this, &planned] { hurt(planned); });
}

void World::hurt(const HurtPlan& hurt) {
  if (takingDown_) return;
  journal_.note(scheduler_.now(), hurt.rank, "is hurt: " + hurt.text());
  const TimePoint until = scheduler_.now() + hurt.lasts;
  if (losesRank(hurt) && !plan_.isDaemon(hurt.rank))
    scheduler_.after(plan_.config.connectTimeout * 3 / 2, [this, &hurt] { tellJob(hurt.rank); });
  if (!hurtProcess(hurt, until)) hurtRank(*ranks_[static_cast<size_t>(hurt.rank)], hurt, until);
}

// What can be done to a daemon, too. False: it is something else.
bool World::hurtProcess(const HurtPlan& hurt, TimePoint until) {
  if (hurt.kind == HurtKind::kill) {
    control_.kill(hurt.rank);
    tcp_.kill(hurt.rank);
    inboxes_.kill(hurt.rank);
    scheduler_.hold(hurt.rank, kNever);
  } else if (hurt.kind == HurtKind::stop) {
    control_.stop(hurt.rank, until);
  } else if (hurt.kind == HurtKind::cut) {
    control_.cut(hurt.rank, hurt.other, until);
  } else if (hurt.kind == HurtKind::pause) {
    std::vector<Task*> threads;
    for (const auto& task : scheduler_.tasks())
      if (task->rank == hurt.rank && !task->over()) threads.push_back(task.get());
    if (!threads.empty())
      scheduler_.holdTask(*threads[static_cast<size_t>(hurt.other) % threads.size()], until);
  } else {
    return false;
  }
  return true;
}

void World::hurtRank(Rank& rank, const HurtPlan& hurt, TimePoint until) {
  if (hurt.kind == HurtKind::abort) {
    rank.abort(static_cast<size_t>(hurt.other));
  } else if (hurt.kind == HurtKind::misuse) {
    rank.misuse(static_cast<size_t>(hurt.other));
  } else if (hurt.kind == HurtKind::withdraw) {
    rank.withdraw(static_cast<size_t>(hurt.other));
  } else if (hurt.kind == HurtKind::wrongTag) {
    rank.turnAway(static_cast<size_t>(hurt.other));
  } else if (hurt.kind == HurtKind::reset) {
    tcp_.reset(hurt.rank, hurt.other, hurt.lasts < std::chrono::milliseconds(1));
  } else if (hurt.kind == HurtKind::railDown) {
    tcp_.down(hurt.rank, hurt.other, hurt.lasts > std::chrono::minutes(1) ? kNever : until);
  } else if (hurt.kind == HurtKind::noSockets) {
    tcp_.refuseDescriptors(hurt.rank, until);
  } else if (hurt.kind == HurtKind::noMemory) {
    rank.refuseMemory(static_cast<uint64_t>(hurt.other));
  } else if (hurt.kind == HurtKind::leave) {
    rank.leave(static_cast<size_t>(hurt.other));
  } else if (hurt.kind == HurtKind::another) {
    rank.startAnother(static_cast<size_t>(hurt.other));
  } else {
    hurtRail(hurt);
  }
}

// The job's own talk tells those that have nothing but the lost rank's handle, or its promise to connect.
void World::tellJob(int lost) {
  for (size_t i = 0; i < plan_.flows.size(); i++) {
    if (plan_.flows[i].from == lost) meetings_[i].senderGone = true;
    if (plan_.flows[i].to == lost) meetings_[i].receiverGone = true;
  }
  for (Gathering& gathering : gatherings_) gathering.gone = lost;
}

fault::FaultControl* World::faultsOf(int process) const {
  return plan_.isDaemon(process) ? daemons_[static_cast<size_t>(process - plan_.ranks)]->faults()
                                 : ranks_[static_cast<size_t>(process)]->faults();
}

void World::hurtRail(const HurtPlan& hurt) {
  auto* faults = faultsOf(hurt.rank);
  if (!faults) return;
  fault::FaultRule rule;
  if (hurt.kind == HurtKind::noRegistering) {
    rule.kind = fault::FaultKind::registerMemory;
    rule.op = fault::FaultOp::call;
    rule.count = 1 + static_cast<uint64_t>(hurt.other);
    faults->add(rule);
    return;
  }
  rule.kind = hurt.kind == HurtKind::railSilent ? fault::FaultKind::killSilent : fault::FaultKind::kill;
  rule.op = fault::FaultOp::poll;
  rule.rail = hurt.other;
  if (hurt.kind == HurtKind::railSlow) {
    rule.kind = fault::FaultKind::delay;
    rule.op = fault::FaultOp::any;
    rule.count = 0;
    rule.polls = kSlowPolls;
  }
  faults->add(rule);
  if (hurt.kind != HurtKind::railGone) return;
  rule.kind = fault::FaultKind::openEndpoint;
  rule.op = fault::FaultOp::call;
  rule.count = 0;
  faults->add(rule);
}

// A dead process is taken down once nobody looks any more: it cannot do anything to anybody.
void World::bringBack(int process) {
  fault::FaultRule silence;
  silence.kind = fault::FaultKind::killSilent;
  silence.op = fault::FaultOp::poll;
  silence.count = 0;
  if (auto* faults = faultsOf(process)) faults->add(silence);
  if (!plan_.isDaemon(process)) {
    Rank& rank = *ranks_[static_cast<size_t>(process)];
    for (size_t flow = 0; flow < plan_.flows.size(); flow++) rank.abort(flow);
    for (size_t group = 0; group < plan_.groups.size(); group++) rank.leave(group);
  }
  control_.goOn(process);
  control_.isolate(process);
}

std::string World::whoIsLeft() const {
  std::string text;
  for (const auto& rank : ranks_) {
    if (rank->finished()) continue;
    for (const auto& end : rank->ends())
      if (!end->closed())
        text += "\n  " + end->name() + " of rank " + std::to_string(rank->number()) + ": " + end->progress();
    for (const auto& member : rank->members())
      if (member && !member->closed())
        text += "\n  " + member->name() + " of rank " + std::to_string(rank->number()) + ": " +
                member->progress();
  }
  return text;
}

// Daemons are there before a job begins.
std::string World::begin() {
  for (const auto& daemon : daemons_)
    if (const Status started = daemon->start(control_, tcp_); !started)
      return "a daemon's process did not start: " + started.error().message();
  const auto serving = [this] {
    return std::all_of(daemons_.begin(), daemons_.end(), [](const auto& daemon) { return daemon->serves(); });
  };
  if (!scheduler_.run(serving, scheduler_.now() + kLongest, kMostSteps)) return "a daemon does not begin";
  for (const auto& daemon : daemons_)
    if (!daemon->complaint().empty()) return daemon->complaint();
  for (const auto& rank : ranks_)
    if (const Status started = rank->start(); !started)
      return "a rank did not start: " + started.error().message();
  return {};
}

bool World::livingAreDone() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [this](const auto& rank) { return rank->finished() || isLost(plan_, rank->number()); });
}

std::string World::live() {
  if (const std::string complaint = begin(); !complaint.empty()) return complaint;
  planHurts(false);
  for (Gathering& gathering : gatherings_) gathering.whenFormed = [this] { planHurts(true); };
  if (plan_.endsAt.count() > 0)
    scheduler_.after(plan_.endsAt, [this] {
      for (const auto& rank : ranks_)
        for (size_t flow = 0; flow < plan_.flows.size(); flow++) rank->abort(flow);
    });
  const TimePoint latest = scheduler_.now() + kLongest;
  if (!scheduler_.run([this] { return livingAreDone(); }, latest, kMostSteps))
    return "it does not end:" + whoIsLeft();
  takingDown_ = true;
  for (const auto& daemon : daemons_) daemon->dismiss();
  for (int process = 0; process < plan_.processes(); process++)
    if (isLost(plan_, process)) bringBack(process);
  const auto allAreOver = [this] {
    for (const auto& task : scheduler_.tasks())
      if (!task->over()) return false;
    return true;
  };
  if (!scheduler_.run(allAreOver, scheduler_.now() + kLongest, kMostSteps))
    return "what was lost cannot be taken down:" + whoIsLeft();
  return {};
}

std::string World::judgeAll() const {
  for (const auto& rank : ranks_)
    for (const auto& end : rank->ends())
      if (const std::string complaint = judge(plan_, *end, rank->number()); !complaint.empty())
        return format("rank %d: ", rank->number()) + complaint;
  for (const auto& rank : ranks_)
    for (const auto& member : rank->members())
      if (const std::string complaint = member ? judge(plan_, *member, rank->number()) : "";
          !complaint.empty())
        return format("rank %d: ", rank->number()) + complaint;
  for (const FlowPlan& flow : plan_.flows) {
    const End* sender = endOf(flow, flow.from, "sender");
    const End* receiver = endOf(flow, flow.to, "receiver");
    if (!sender || !receiver) continue;
    if (const std::string complaint = judgePair(plan_, *sender, *receiver); !complaint.empty())
      return complaint;
  }
  return {};
}

const End* World::endOf(const FlowPlan& flow, int rank, const char* which) const {
  for (const auto& end : ranks_[static_cast<size_t>(rank)]->ends())
    if (&end->flow() == &flow && end->name().ends_with(which)) return end.get();
  return nullptr;
}

std::string World::leftovers() const {
  if (control_.hubs() > 0) return format("%zu processes still have control links", control_.hubs());
  if (!tcp_.complaint().empty()) return "a system call: " + tcp_.complaint();
  if (tcp_.open() > 0) return format("%zu sockets are still open", tcp_.open());
  return {};
}

Outcome World::run() {
  Outcome outcome;
  const Listening log(scheduler_);
  const TimePoint began = scheduler_.now();
  outcome.complaint = live();
  if (outcome.complaint.empty() && !plan_.byWarnings) outcome.complaint = judgeAll();
  if (outcome.complaint.empty()) outcome.complaint = leftovers();
  outcome.warnings = log.warnings();
  if (outcome.complaint.empty() && plan_.hurts.empty() && !outcome.warnings.empty())
    outcome.complaint = "a warning, though nothing was done to anybody: " + outcome.warnings.front().text;
  for (const auto& rank : ranks_)
    for (const auto& end : rank->ends()) outcome.failed += end->report().failed;
  for (const auto& rank : ranks_)
    for (const auto& member : rank->members()) outcome.failed += member && member->report().failed;
  outcome.hash = journal_.hash();
  outcome.steps = scheduler_.steps();
  outcome.lasted = scheduler_.now() - began;
  outcome.last = journal_.text();
  outcome.whole = journal_.whole();
  outcome.plan = plan_.text();
  // What lies on the stacks of tasks that did not end can be neither used nor destroyed.
  if (!outcome.complaint.empty()) {
    for (auto& rank : ranks_) (void)rank.release();
    for (auto& daemon : daemons_) (void)daemon.release();
  }
  return outcome;
}

}  // namespace

Outcome runPlan(const WorldPlan& plan, bool keepAll) {
  core::forgetEndings();  // a world before it, in which what is refused, or said, would be another one's
  World world(plan, keepAll);
  return world.run();
}

Outcome runWorld(const PlanOptions& options, bool keepAll) {
  return runPlan(drawPlan(options), keepAll);
}

}  // namespace weft::world
