// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/simulation.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <utility>

#include "src/base/log.h"
#include "tools/sim/connecting.h"
#include "tools/sim/host.h"
#include "tools/sim/movement.h"
#include "tools/world/journal.h"

namespace weft::sim {

namespace {

using std::chrono::milliseconds;

constexpr auto kLongestRun = std::chrono::hours(24);  // of its own time
constexpr auto kLook = milliseconds(1);               // a thread looks at least so often
constexpr uint64_t kFirstBytes = 8;                   // a rank of the first operation, where its size is open

double microseconds(Nanoseconds time) {
  return static_cast<double>(time.count()) / 1e3;
}

// Memory that all ranks use for all their messages. Pages that nobody touches are none.
class Scratch {
 public:
  Scratch() {
    void* made = ::mmap(nullptr, kSlotBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data_ = made == MAP_FAILED ? nullptr : static_cast<std::byte*>(made);
  }
  ~Scratch() {
    if (data_) ::munmap(data_, kSlotBytes);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

// A place where all ranks wait for each other, out of the network's way.
class Gate {
 public:
  explicit Gate(std::deque<Host>& hosts) : hosts_(hosts) {}
  // True for the rank that comes last, and before the others go on.
  bool arrive() {
    if (++here_ < hosts_.size()) return false;
    here_ = 0;
    passed_++;
    for (Host& host : hosts_) host.tell(host.now());
    return true;
  }
  uint64_t passed() const { return passed_; }
  void wait(Host& host, uint64_t before) const {
    while (passed_ == before) host.idle(TimePoint::max());
  }

 private:
  std::deque<Host>& hosts_;
  size_t here_ = 0;
  uint64_t passed_ = 0;
};

class Simulation {
 public:
  Simulation(const Setup& setup, const Watcher& watcher);
  Result<Outcome> run();

 private:
  // A rank's links, and its part of the operation over them.
  struct Seat {
    std::vector<LinksOfRank> links;  // by instance
    std::vector<std::unique_ptr<Movement>> movements;
  };

  int instances() const { return setup_.operation ? setup_.operation->ways : 1; }
  Processor* processorOf(int rank);
  bool connects(int from, int to, int instance) const;
  void layLinks();
  void thread(size_t rank);
  Status live(size_t rank);
  Status connect(Host& host, Seat& seat);
  Status measureAll(Host& host, Seat& seat);
  uint64_t sharers() const;
  Status once(Host& host, Seat& seat, uint64_t bytes);
  void meet(Host& host, const std::function<void()>& last);
  void noteConnections();

  const Setup& setup_;
  const Watcher& watcher_;
  const Scratch scratch_;
  world::Journal journal_;
  world::Scheduler scheduler_;
  world::ControlNet control_;
  std::deque<Link> links_;
  std::vector<Seat> seats_;
  std::deque<Processor> processors_;
  std::deque<Host> hosts_;
  Gate gate_{hosts_};
  Outcome outcome_;
  std::optional<Error> failure_;
  TimePoint began_{};
  uint64_t messages_ = 0;
  size_t over_ = 0;
};

// Mail goes over the network that the cards are on, or another one of its kind: by sockets, so the kernel
// takes some time at either end.
world::ControlCosts controlCosts(const Fabric& fabric) {
  constexpr double kKernelsUs = 30;
  world::ControlCosts costs;
  costs.latency = Nanoseconds(static_cast<int64_t>((fabric.latencyUs + kKernelsUs) * 1000));
  costs.linking = 4 * costs.latency;  // TCP's handshake, then ours
  costs.perMail = std::chrono::microseconds(5);
  return costs;
}

Processor::Looks looksOf(const tuner::HostCosts& host) {
  const auto time = [](double us) { return Nanoseconds(static_cast<int64_t>(us * 1000)); };
  return {time(host.lookUs), time(std::max(host.lookUs, host.sharedStepUs - host.sendUs - host.receiveUs))};
}

QueueDepths depthsFor(int ranks, const perf::Operation* operation) {
  const bool many = !operation || operation->movement == perf::Movement::allToAll;
  return ranks > 64 && !many ? QueueDepths{1024, 2048, -1} : QueueDepths{4096, 8192, -1};
}

Simulation::Simulation(const Setup& setup, const Watcher& watcher)
    : setup_(setup),
      watcher_(watcher),
      scheduler_(setup.seed, journal_),
      control_(scheduler_, setup.ranks, controlCosts(setup.fabric)),
      seats_(static_cast<size_t>(setup.ranks)) {
  const Site site{scheduler_, control_, setup_.fabric, setup_.config,
                  depthsFor(setup.ranks, setup.operation)};
  for (int i = 0; setup.fabric.oneHost() && i < setup.fabric.host.processors; i++)
    processors_.emplace_back(scheduler_, looksOf(setup.fabric.host));
  for (int rank = 0; rank < setup.ranks; rank++) hosts_.emplace_back(site, rank, processorOf(rank));
  control_.hearBy([this](int rank) {
    Host& host = hosts_[static_cast<size_t>(rank)];
    host.tell(host.now());
  });
}

// Ranks are as many on each as can be, one beside the other, as a system lays them out that starts them one
// by one.
Processor* Simulation::processorOf(int rank) {
  if (processors_.empty()) return nullptr;
  return &processors_[static_cast<size_t>(rank) % processors_.size()];
}

bool Simulation::connects(int from, int to, int instance) const {
  const int distance = (to - from + setup_.ranks) % setup_.ranks;
  if (!setup_.operation) return from != to && (setup_.peers == 0 || distance <= setup_.peers);
  return setup_.operation->connects(from, to, setup_.ranks, instance);
}

// Each rank's by distance round the ranks, as NCCL makes them.
void Simulation::layLinks() {
  const int n = setup_.ranks;
  for (Seat& seat : seats_) seat.links.resize(static_cast<size_t>(instances()));
  for (int instance = 0; instance < instances(); instance++)
    for (int distance = 1; distance < n; distance++)
      for (int from = 0; from < n; from++) {
        const int to = (from + distance) % n;
        if (!connects(from, to, instance)) continue;
        links_.push_back({from, to, {}});
        seats_[static_cast<size_t>(from)].links[static_cast<size_t>(instance)].out.push_back(&links_.back());
        seats_[static_cast<size_t>(to)].links[static_cast<size_t>(instance)].in.push_back(&links_.back());
      }
  outcome_.connections = links_.size();
}

// `last` is done by the rank that comes last, before any goes on.
void Simulation::meet(Host& host, const std::function<void()>& last) {
  host.leave();
  const uint64_t before = gate_.passed();
  if (gate_.arrive() && last) last();
  gate_.wait(host, before);
}

// The ranks of a processor, where they share one.
uint64_t Simulation::sharers() const {
  const size_t processors = std::max<size_t>(1, processors_.size());
  return (hosts_.size() + processors - 1) / processors;
}

// A pass may poll in what an earlier part of it waited for, and leaves the other rails to the next one where
// it finds something. So the thread rests after as many in vain, or after one in which no rail had anything.
Status Simulation::once(Host& host, Seat& seat, uint64_t bytes) {
  const int mostInVain = setup_.fabric.rails + 1;
  host.enter();
  host.useMemory(sharers() * 2 * bytes);
  for (const auto& movement : seat.movements) movement->start(bytes);
  const auto isDone = [](const auto& movement) { return movement->done(); };
  int inVain = 0;
  bool untold = false;
  while (!std::all_of(seat.movements.begin(), seat.movements.end(), isDone)) {
    Effort effort;
    effort.prepareMessage = [&host, &effort] {
      host.work(&effort);
      host.prepareMessage();
    };
    const uint64_t found = host.found();
    for (const auto& movement : seat.movements) TRY(movement->progress(&effort));
    messages_ += effort.sent + effort.received;
    outcome_.untold += untold && effort.moved;
    untold = false;
    inVain = effort.moved ? 0 : host.found() == found ? mostInVain : inVain + 1;
    if (effort.moved) host.take(&effort);
    if (inVain < mostInVain) continue;
    untold = !host.idle(host.now() + kLook);
    inVain = 0;
  }
  host.pay();
  return {};
}

Status Simulation::connect(Host& host, Seat& seat) {
  std::vector<std::unique_ptr<Connecting>> instances;
  for (const LinksOfRank& links : seat.links) {
    instances.push_back(std::make_unique<Connecting>(host, links));
    TRY(instances.back()->listen());
  }
  meet(host, [this] { began_ = scheduler_.now(); });
  for (size_t i = 0; i < instances.size(); i++) {
    Wires wires;
    wires.rank = host.number();
    wires.size = setup_.ranks;
    wires.memory = scratch_.data();
    TRY(instances[i]->make(&wires));
    TRY(auto movement, makeMovement(setup_.operation, static_cast<int>(i), std::move(wires)));
    seat.movements.push_back(std::move(movement));
  }
  outcome_.connectedUs = std::max(outcome_.connectedUs, microseconds(scheduler_.now() - began_));
  TRY(host.connected());
  TRY(once(host, seat, kFirstBytes * static_cast<uint64_t>(setup_.ranks)));
  outcome_.firstResultUs = std::max(outcome_.firstResultUs, microseconds(scheduler_.now() - began_));
  outcome_.mostRegistered = std::max(outcome_.mostRegistered, host.registeredBytes());
  return {};
}

void Simulation::noteConnections() {
  outcome_.controlMails = control_.carried();
  for (const auto& [rank, links] : control_.linksByRank())
    outcome_.mostSockets = std::max(outcome_.mostSockets, links);
}

Status Simulation::measureAll(Host& host, Seat& seat) {
  for (size_t size = 0; size < setup_.sizes.size(); size++) {
    const uint64_t bytes = setup_.sizes[size];
    meet(host, [&] {
      if (watcher_.began) watcher_.began(size);
    });
    for (int i = 0; i < setup_.warmup; i++) TRY(once(host, seat, bytes));
    meet(host, [&] {
      outcome_.rows.push_back({bytes, 0, 0, 0});
      messages_ = 0;
    });
    const TimePoint begin = scheduler_.now();
    for (int i = 0; i < setup_.iterations; i++) TRY(once(host, seat, bytes));
    const double taken = microseconds(scheduler_.now() - begin) / setup_.iterations;
    Timed& row = outcome_.rows[size];
    row.microseconds += taken / setup_.ranks;
    row.slowest = std::max(row.slowest, taken);
    meet(host, [&] { row.messages = messages_; });
  }
  return {};
}

Status Simulation::live(size_t rank) {
  Host& host = hosts_[rank];
  Seat& seat = seats_[rank];
  TRY(host.open());
  TRY(connect(host, seat));
  meet(host, [this] { noteConnections(); });
  TRY(measureAll(host, seat));
  meet(host, {});
  seat.movements.clear();
  host.close();
  return {};
}

void Simulation::thread(size_t rank) {
  const Status lived = live(rank);
  if (!lived && !failure_) failure_ = lived.error();
  over_++;
}

Result<Outcome> Simulation::run() {
  if (!scratch_.data()) return Error(Code::resources, "simulating", "no memory for a megabyte of messages");
  layLinks();
  for (size_t rank = 0; rank < hosts_.size(); rank++) hosts_[rank].run([this, rank] { thread(rank); });
  const auto ended = [this] {
    if (watcher_.stepped) watcher_.stepped();
    if (failure_ || over_ < hosts_.size()) return failure_.has_value();
    const auto& tasks = scheduler_.tasks();
    return std::all_of(tasks.begin(), tasks.end(), [](const auto& task) { return task->over(); });
  };
  if (!scheduler_.run(ended, scheduler_.now() + kLongestRun, ~uint64_t{0}) && !failure_)
    failure_ = Error(Code::timeout, "simulating", "the operation does not end within a day of its own time");
  if (failure_) return *failure_;
  outcome_.steps = scheduler_.steps();
  outcome_.hash = journal_.hash();
  return std::move(outcome_);
}

}  // namespace

// A simulation that failed stays: the stacks of its tasks hold objects that can be neither used nor
// destroyed.
Result<Outcome> simulate(const Setup& setup, const Watcher& watcher) {
  auto simulation = std::make_unique<Simulation>(setup, watcher);
  auto outcome = simulation->run();
  if (!outcome) (void)simulation.release();
  return outcome;
}

Result<OneWay> measureOneWay(const Setup& of, const Watcher& watcher) {
  constexpr uint64_t kLarge = uint64_t{64} << 20;
  Setup setup = of;
  TRY(setup.operation, perf::findOperation("broadcast", ""));
  setup.ranks = 2;
  setup.fabric.rails = 1;
  setup.sizes = {8, kLarge};
  TRY(const Outcome outcome, simulate(setup, watcher));
  return OneWay{outcome.rows[0].slowest, static_cast<double>(kLarge) / outcome.rows[1].slowest / 1e3};
}

}  // namespace weft::sim
