// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/team.h"

#include <fmt/format.h>

#include "tools/netdriver/log_sink.h"

namespace weft::perf {

namespace {

constexpr uint64_t kQuestionId = 0x7765667400000000;  // of the context that only asks for properties

}  // namespace

Result<std::unique_ptr<Team>> Team::open(const TeamSetup& setup) {
  auto team = std::make_unique<Team>(Key{});
  team->setup_ = setup;
  TRY(team->openPlugin());
  return team;
}

Status Team::openPlugin() {
  const std::string path = setup_.plugin.empty() ? netdriver::defaultPluginPath() : setup_.plugin;
  TRY(library_, netdriver::Library::open(path, setup_.options->abi));
  TRY(netdriver::Context context, netdriver::Context::create(library_->net(), kQuestionId));
  context_.emplace(std::move(context));
  TRY(readDevice(path));
  fabric_ = netdriver::LogSink::instance().takeFabric();
  return {};
}

Status Team::readDevice(const std::string& path) {
  const Options& options = *setup_.options;
  netdriver::Net& net = library_->net();
  int count = 0;
  TRY(netdriver::check(net.devices(&count), netdriver::Call::devices, path));
  if (options.device >= count)
    return Error(Code::unavailable, "open plugin",
                 fmt::format("{} offers {} devices, --device is {}", path, count, options.device));
  number_ = options.device;
  if (options.merge) {
    TRY(number_, netdriver::mergeDevices(net));
  }
  TRY(netdriver::check(net.getProperties(number_, &device_), netdriver::Call::getProperties, path));
  if (options.group > device_.maxRecvs)
    return Error(Code::invalidArgument, "command line",
                 fmt::format("--group {}: {} receives at most {} messages at once", options.group, path,
                             device_.maxRecvs));
  return {};
}

Team::~Team() {
  for (size_t i = 0; i < communicators_.size(); ++i)
    (void)serviceOf(i)([&]() -> Status {
      communicators_[i].reset();
      return {};
    });
}

OnThread Team::serviceOf(size_t communicator) {
  const int thread = static_cast<int>(communicator) + 1;  // 0 is the caller
  return [this, thread](const std::function<Status()>& job) { return services_->runOn(thread, job); };
}

Status Team::connect() {
  services_.emplace(static_cast<int>(setup_.workloads.size()) + 1);
  for (size_t i = 0; i < setup_.workloads.size(); ++i) {
    CommunicatorSetup one;
    one.bootstrap = setup_.bootstrap;
    one.net = &library_->net();
    one.offload = library_->offload();
    one.oneSided = library_->oneSided();
    one.options = setup_.options;
    one.device = number_;
    one.operation = setup_.operation;
    one.workload = &setup_.workloads[i];
    one.number = static_cast<int>(i);
    one.onThread = serviceOf(i);
    TRY(auto communicator, Communicator::create(one));
    communicators_.push_back(std::move(communicator));
  }
  return setup_.bootstrap->barrier();
}

std::vector<Communicator*> Team::ofThread(int thread, int threads) const {
  std::vector<Communicator*> mine;
  for (size_t i = static_cast<size_t>(thread); i < communicators_.size(); i += static_cast<size_t>(threads))
    mine.push_back(communicators_[i].get());
  return mine;
}

uint64_t Team::messages() const {
  uint64_t sum = 0;
  for (const auto& communicator : communicators_) sum += communicator->messages();
  return sum;
}

}  // namespace weft::perf
