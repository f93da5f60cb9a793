// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/aggregator.h"

#include "src/base/log.h"

namespace weft::world {

namespace {

// A daemon looks at its groups again and again, so that a yield that is as short as a rank's would make its
// steps most of a world's.
constexpr Nanoseconds kYields = std::chrono::microseconds(10);
constexpr uint64_t kCommunicator = 9000;

}  // namespace

Aggregator::Aggregator(Scheduler& scheduler, const WorldPlan& plan, size_t place)
    : scheduler_(scheduler),
      plan_(plan),
      place_(place),
      host_(scheduler, plan, plan.hostOf(place), kYields),
      threads_(scheduler, host_.clock(), plan.hostOf(place)) {}

Status Aggregator::start(ControlNet& control, PlayedTcp& tcp) {
  TRY(host_.open(control, tcp, plan_.config));
  scheduler_.start(format("daemon %zu", place_), host_.number(), [this] { live(); });
  return {};
}

agg::DaemonOptions Aggregator::options() const {
  const DaemonPlan& plan = plan_.daemons[place_];
  core::ContextOptions context;
  context.perCommunicator = true;
  context.communicator = kCommunicator + place_;
  agg::DaemonOptions options;
  options.context = host_.net().openContext(std::move(context));
  options.device = host_.device();
  options.listen = options.name = plan.address;
  options.secret = plan_.config.aggdSecret;
  options.window = plan.window;
  options.limits.patience = plan_.config.collnetTimeout;
  options.threads = &threads_;
  return options;
}

// As weft-aggd does when it is told to end: its groups may come to their end first.
void Aggregator::end(agg::Daemon& daemon) const {
  const TimePoint until = host_.clock().now() + plan_.config.connectTimeout;
  while (!daemon.drain() && host_.clock().now() < until) pause();
}

void Aggregator::live() {
  auto daemon = agg::Daemon::start(options());
  if (!daemon) complaint_ = "a daemon did not start: " + daemon.error().message();
  state_ = State::serves;
  while (daemon && !dismissed_) pause();
  if (daemon) end(**daemon);
  if (daemon) daemon->reset();
  host_.close();
  state_ = State::over;
}

}  // namespace weft::world
