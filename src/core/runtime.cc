// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/runtime.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <ctime>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/reserve.h"

namespace weft::core {

namespace {

// A thread's identity without a system call, in the order in which threads first connected: no address, as
// engines are kept in this order. Plain data, so that it does not keep the library from being unloaded.
uint32_t threadNumber() {
  static std::atomic<uint32_t> threads{0};
  thread_local uint32_t mine = 0;
  if (mine == 0) mine = ++threads;
  return mine;
}

control::Fingerprint fingerprintOf(const Net& net) {
  const Config& config = net.config();
  control::Fingerprint print;
  print.push_back({"weft version", WEFT_VERSION, false});
  print.push_back({"provider", net.transport().name(), true});
  print.push_back({"fabric library", net.transport().version(), false});
  print.push_back({"WEFT_SEQUENCE_BITS", std::to_string(config.sequenceBits), true});
  print.push_back({"WEFT_MAX_RAILS", std::to_string(config.maxRails), true});
  print.push_back({"WEFT_EAGER_MAX", std::to_string(config.eagerMaxBytes), false});
  print.push_back({"WEFT_STRIPE_MIN", std::to_string(config.stripeMinBytes), false});
  print.push_back({kCheckingField, config.checksum, false});
  print.push_back({kProcessField, Presence::ofThisProcess().key(), false});
  if (!net.tuner().empty()) print.push_back({"tuner", net.tuner(), true});
  return print;
}

}  // namespace

Result<std::shared_ptr<Runtime>> Runtime::create(std::shared_ptr<Net> net) {
  auto runtime = std::make_shared<Runtime>(std::move(net));
  runtime->router_ = std::make_shared<Router>(runtime->net().config(), runtime->pending_);
  control::HubOptions options;
  options.config = runtime->net().config();
  options.fingerprint = fingerprintOf(runtime->net());
  options.handler = runtime->router_;
  options.clock = &runtime->net().clock();
  TRY(runtime->hub_, runtime->net().makeHub(std::move(options)));
  runtime->openStats();
  TRY(runtime->reportState());
  return runtime;
}

// Counting is a help, and no reason for a job to fail.
void Runtime::openStats() {
  const Config& config = net_->config();
  stats::Profile* profile = net_->profile();
  if (!config.stats && !profile) return;
  auto made = stats::StatsFile::create(config.stateDir);
  if (!made && !config.stateDir.empty()) {
    WEFT_LOG(warn, "%s", made.error().message().c_str());
    made = stats::StatsFile::create("");
  }
  if (made) stats_ = std::move(*made);
  if (!profile) return;
  if (stats_) stats_->keepAll();
  profile->begin(this);
}

// Called when this goes, and at the end of the process, whatever its threads do then: it waits for nothing
// but short locks.
void Runtime::addTo(stats::ProfileSums* sums) {
  if (stats_) stats_->addTo(sums);
  rails_.addTo(sums);
  const std::lock_guard lock(mutex_);
  for (const auto& [device, cache] : caches_) {
    const mem::CacheCounters of = cache->counters();
    sums->add(device, {of.hits, of.misses, of.evictions, of.bytes, of.nanoseconds});
  }
}

Status Runtime::reportState() {
  const std::string& folder = net_->config().stateDir;
  if (folder.empty()) return {};
  StateReport::Source source;
  source.clock = &net_->clock();
  source.text = [this] { return stateText(); };
  source.warnings = [this] {
    uint32_t warnings = 0;
    for (const auto& engine : living()) warnings += engine->waits().warnings();
    return warnings;
  };
  TRY(report_, StateReport::start(folder, std::move(source)));
  return {};
}

std::vector<std::shared_ptr<Engine>> Runtime::living() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Engine>> engines;
  for (const auto& [key, known] : engines_) {
    if (auto engine = known.engine.lock()) engines.push_back(std::move(engine));
  }
  return engines;
}

std::string Runtime::stateText() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char date[32] = "";
  gmtime_r(&now, &parts);
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &parts);
  std::string text = format("weft " WEFT_VERSION ", %s pid %d at %s, over %s\n", placeName().c_str(),
                            ::getpid(), date, net_->transport().name().c_str());
  for (const auto& engine : living()) text += engine->stateText();
  {
    std::lock_guard lock(tellersMutex_);
    for (const auto& [number, tell] : tellers_) text += tell();
  }
  if (const size_t meetings = pending_->size(); meetings > 0)
    text += format("%zu connections are being made\n", meetings);
  return text;
}

std::unique_ptr<Runtime::Told> Runtime::tellState(std::shared_ptr<Runtime> runtime,
                                                  std::function<std::string()> tell) {
  std::lock_guard lock(runtime->tellersMutex_);
  const uint64_t number = ++runtime->toldBy_;
  runtime->tellers_.emplace(number, std::move(tell));
  return std::make_unique<Told>(runtime, number);
}

Runtime::Told::~Told() {
  std::lock_guard lock(runtime_->tellersMutex_);
  runtime_->tellers_.erase(number_);
}

Runtime::Runtime(std::shared_ptr<Net> net)
    : net_(std::move(net)), windows_(static_cast<uint64_t>(net_->config().windowPoolMib) << 20) {}

// Connections half made go first: they hold engines. Those say goodbye over the hub, and tell what their
// rails carried.
Runtime::~Runtime() {
  const MustNotFail closing;
  report_.reset();
  pending_->dropAll();
  engines_.clear();
  if (stats::Profile* profile = net_->profile()) profile->end(this);
}

Result<Runtime::DeviceUse> Runtime::openDevice(int device) {
  assert(mayBlock());
  if (const auto known = devices_.find(device); known != devices_.end()) return known->second;
  DeviceUse use;
  std::vector<int> rails = net_->railsOf(device);
  rails.resize(std::min(rails.size(), static_cast<size_t>(net_->config().maxRails)));  // as many as lanes use
  for (const int index : rails) {
    std::shared_ptr<Device> rail = physical_[index].lock();
    if (!rail) {
      TRY(rail, net_->transport().open(net_->rail(index)));
    }
    physical_[index] = rail;
    use.rails.push_back(std::move(rail));
  }
  TRY(openLocal(device, &use));
  devices_[device] = use;
  return use;
}

// What is registered with a device's rails is registered with shared memory, too, where that may be used.
Status Runtime::openLocal(int device, DeviceUse* use) const {
  std::vector<std::shared_ptr<Device>> all = use->rails;
  mem::CacheOptions options = net_->cacheOptions(device);
  if (Transport* local = net_->localFor(device)) {
    TRY(const auto infos, local->discover());
    DeviceInfo info = infos.front();
    info.cudaMemory = options.path.works();
    info.sharedGpu = false;  // what cannot be shared goes by the card, and everything else with it
    TRY(use->local, local->open(info));
    all.push_back(use->local);
    options.hostRails = info.cudaMemory ? 0 : 1;
  }
  use->regions = std::make_shared<mem::RegionCache>(std::move(all), std::move(options));
  return {};
}

Result<std::shared_ptr<Engine>> Runtime::engineFor(const ContextRef& context, int device) {
  const ContextOptions& of = context->options();
  const EngineKey key{device, of.trafficClass, context->seat(), of.perCommunicator ? 0 : threadNumber()};
  if (auto known = usable(key)) return known;
  const std::lock_guard opening(opening_);
  if (auto known = usable(key)) return known;  // another thread has made it meanwhile
  TRY(auto engine, makeEngine(of, device));
  keepEngine(key, engine, of.perCommunicator);
  router_->add(engine);
  hub_->wake();
  return engine;
}

// The engine is asked outside of the lock, as it may be occupied.
std::shared_ptr<Engine> Runtime::usable(const EngineKey& key) {
  std::shared_ptr<Engine> known;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = engines_.find(key); found != engines_.end()) known = found->second.engine.lock();
  }
  return known && !known->wornOut() ? known : nullptr;
}

// The one that was there before, whose card is lost, goes after the lock: it says goodbye to its peers.
void Runtime::keepEngine(const EngineKey& key, const std::shared_ptr<Engine>& engine, bool forever) {
  KnownEngine known{engine, forever ? engine : nullptr};
  const std::lock_guard lock(mutex_);
  std::erase_if(engines_, [](const auto& entry) { return entry.second.engine.expired(); });
  std::swap(engines_[key], known);
}

Result<std::shared_ptr<Engine>> Runtime::makeEngine(const ContextOptions& of, int device) {
  TRY(DeviceUse use, openDevice(device));
  TRY(Properties properties, net_->properties(device));
  EngineOptions options;
  options.config = &net_->config();
  options.clock = &net_->clock();
  options.regions = use.regions;
  options.devices = use.rails;
  options.local = use.local;
  options.windows = &windows_;
  options.stats = stats_.get();
  if (net_->profile()) options.rails = &rails_;
  options.deviceName = properties.name;
  {
    const std::lock_guard lock(mutex_);
    caches_[properties.name] = use.regions;
  }
  options.trafficClass = of.trafficClass;
  return Engine::create(std::move(options));
}

void Runtime::awaitClosing() {
  constexpr std::chrono::microseconds kPause{50};
  for (const auto& engine : living())
    while (engine->passClosing()) net_->clock().sleep(kPause);
}

}  // namespace weft::core
