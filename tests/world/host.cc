// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/host.h"

#include <numeric>
#include <utility>
#include <vector>

#include "providers/fault/transport.h"
#include "providers/local/transport.h"
#include "providers/loop/transport.h"
#include "providers/tcp/transport.h"
#include "src/base/log.h"
#include "tests/world/refusals.h"

namespace weft::world {

namespace {

// The end of a task is seen by looking, as a fiber tells nobody.
class TaskThread final : public RunningThread {
 public:
  TaskThread(const Task& task, const Clock& clock) : task_(task), clock_(clock) {}
  void join() override {
    while (!task_.over()) clock_.sleep(std::chrono::microseconds(20));
  }

 private:
  const Task& task_;
  const Clock& clock_;
};

}  // namespace

void WorldClock::sleep(Nanoseconds time) const {
  const Granting others;
  const auto more = scheduler_.random().below(static_cast<uint64_t>(time.count()) / 4 + 1000);
  scheduler_.sleep(time + Nanoseconds(more));
}

void WorldClock::yield() const {
  const Granting others;
  scheduler_.sleep(Nanoseconds(100 + scheduler_.random().below(static_cast<uint64_t>(yields_.count()))));
}

Result<std::unique_ptr<RunningThread>> WorldThreads::start(const char* name,
                                                           std::function<void()> body) const {
  const Task& task = scheduler_.start(format("%s %d", name, process_), process_, std::move(body));
  return std::unique_ptr<RunningThread>(std::make_unique<TaskThread>(task, clock_));
}

Host::Host(Scheduler& scheduler, const WorldPlan& plan, int number, Nanoseconds yields)
    : plan_(plan), number_(number), clock_(scheduler, yields) {}

std::unique_ptr<Transport> Host::makeFabric(const Config& config) {
  loop::LoopOptions options = plan_.fabric;
  options.seed += static_cast<uint64_t>(number_);
  options.rails = plan_.railsOf(number_);
  std::unique_ptr<Transport> fabric;
  if (plan_.tcp.on)
    fabric = tcp::makeTransport(config, clock_);
  else if (plan_.localAlone)
    fabric = local::makeTransport(config, clock_);
  else
    fabric = loop::makeTransport(std::move(options));
  if (!plan_.breakable) return fabric;
  fault::FaultOptions faults;
  faults.control = faults_ = std::make_shared<fault::FaultControl>(plan_.seed);
  return fault::makeTransport(std::move(fabric), std::move(faults));
}

Status Host::open(ControlNet& control, PlayedTcp& tcp, const Config& config) {
  tcp.addRails(number_, plan_.railsOf(number_));
  tcp.callsAs(number_);
  core::NetOptions options;
  options.config = config;
  options.transport = makeFabric(config);
  if (plan_.hasLocal(number_)) options.local = local::makeTransport(config, clock_);
  options.clock = &clock_;
  options.makeHub = [&control, number = number_](control::HubOptions hub) {
    return control.makeHub(number, std::move(hub));
  };
  TRY(net_, core::Net::create(std::move(options)));
  if (plan_.railsOf(number_) == 1) return {};
  std::vector<int> rails(static_cast<size_t>(plan_.railsOf(number_)));
  std::iota(rails.begin(), rails.end(), 0);
  TRY(device_, net_->makeVirtual(rails));
  return {};
}

}  // namespace weft::world
