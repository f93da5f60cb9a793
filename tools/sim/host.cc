// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/host.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "providers/loop/transport.h"
#include "src/base/log.h"
#include "src/core/engine_entry.h"
#include "src/core/runtime.h"

namespace weft::sim {

namespace {

constexpr auto kLongestPass = std::chrono::microseconds(2);
constexpr uint64_t kPiece = uint64_t{64} << 10;   // of a message that one processor copies behind the other
constexpr int kMostAtOnce = 8;                    // passes that a thread makes when it looks again
constexpr size_t kMostCopied = size_t{64} << 10;  // bytes of larger writes are nobody's concern

Nanoseconds nanoseconds(double us) {
  return Nanoseconds(static_cast<int64_t>(us * 1000));
}

Nanoseconds timeOf(uint64_t bytes, double gbps) {
  return Nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) / gbps));
}

void setDriver(Driver driver, loop::LoopOptions* options) {
  options->delivery = driver == Driver::tcp ? Delivery::selectable : Delivery::always;
  options->messages = options->postIsCall = driver == Driver::tcp;
  options->targetMustKnow = driver == Driver::efa;
}

// Of the memory that the threads on one processor use: of less of it caches hold all, of more hardly any.
constexpr double kNearBytes = 4 << 20;
constexpr double kFarBytes = 64 << 20;

// The time of a byte lies between both.
double mixed(double near, double far, double share) {
  return 1 / ((1 - share) / near + share / far);
}

}  // namespace

Host::Host(const Site& site, int number, Processor* processor)
    : site_(site), number_(number), clock_(site.scheduler), processor_(processor) {}

std::shared_ptr<Transport> Host::makeFabric() {
  const Fabric& fabric = site_.fabric;
  loop::LoopOptions options;
  options.rails = fabric.rails;
  options.landing = loop::Landing::whenPolled;
  options.mostCopied = kMostCopied;
  options.maxDepths = site_.depths;
  options.speedMbps = fabric.speedMbps();
  options.stats = stats_;
  setDriver(fabric.driver, &options);
  const loop::CardSpeed speed{fabric.railGBps, nanoseconds(fabric.latencyUs), nanoseconds(fabric.workUs)};
  for (int rail = 0; rail < fabric.rails; rail++)
    cards_.push_back(std::make_shared<loop::Card>(clock_, speed, [this](TimePoint when) { tell(when); }));
  options.cards = cards_;
  return loop::makeTransport(std::move(options));
}

Status Host::open() {
  core::NetOptions options;
  options.config = site_.config;
  options.transport = makeFabric();
  options.clock = &clock_;
  options.makeHub = [this](control::HubOptions hub) {
    return site_.control.makeHub(number_, std::move(hub));
  };
  TRY(net_, core::Net::create(std::move(options)));
  if (site_.fabric.rails > 1) {
    std::vector<int> rails(static_cast<size_t>(site_.fabric.rails));
    std::iota(rails.begin(), rails.end(), 0);
    TRY(device_, net_->makeVirtual(rails));
  }
  core::ContextOptions context;
  context.perCommunicator = true;
  context.communicator = 1;
  context_ = net_->openContext(std::move(context));
  return {};
}

void Host::close() {
  engine_.reset();
  context_.reset();
  net_.reset();
}

void Host::run(std::function<void()> thread) {
  task_ = &site_.scheduler.start(format("rank %d", number_), number_, std::move(thread));
}

Status Host::connected() {
  TRY(const auto runtime, net_->runtime());
  TRY(engine_, runtime->engineFor(context_, device_));
  return {};
}

size_t Host::registeredBytes() {
  return engine_->arena().registeredBytes() + engine_->earlyMemory().mappedBytes();
}

uint64_t Host::found() const {
  uint64_t found = 0;
  for (int rail = 0; rail < site_.fabric.rails; rail++)
    found += stats_->rails[static_cast<size_t>(rail)].handedOut.load(std::memory_order_relaxed);
  return found;
}

// Together with all that was owed before: nobody could have seen the difference.
void Host::prepareMessage() {
  owed_ += nanoseconds(site_.fabric.messageUs);
  pay();
}

void Host::take(Effort* effort) {
  const Fabric& fabric = site_.fabric;
  const double foundUs = processor_ ? fabric.host.receiveUs : fabric.messageUs;
  owed_ += nanoseconds(static_cast<double>(effort->calls) * fabric.callUs +
                       static_cast<double>(effort->received) * foundUs +
                       static_cast<double>(effort->inVain) * fabric.host.testUs);
  work(effort);
  if (processor_) move(*effort);
}

// There are no cards, so a message is under way as long as its sender copies it.
void Host::useMemory(uint64_t bytes) {
  if (!processor_) return;
  const tuner::HostRates& near = site_.fabric.host.near;
  const tuner::HostRates& far = site_.fabric.host.far;
  const double share = std::clamp(
      std::log(static_cast<double>(bytes) / kNearBytes) / std::log(kFarBytes / kNearBytes), 0.0, 1.0);
  rates_ = {mixed(near.sendGBps, far.sendGBps, share), mixed(near.receiveGBps, far.receiveGBps, share),
            mixed(near.copyGBps, far.copyGBps, share), mixed(near.reduceGBps, far.reduceGBps, share)};
  for (const auto& card : cards_) card->setRate(rates_.sendGBps);
}

void Host::work(Effort* effort) {
  if (!processor_) return;
  owed_ += timeOf(std::exchange(effort->copied, 0), rates_.copyGBps) +
           timeOf(std::exchange(effort->reduced, 0), rates_.reduceGBps);
}

// Both ends of a message are copies of processors, the receiver's behind the sender's. Where the receiver
// had nothing else to do meanwhile it has all but the last piece already.
void Host::move(const Effort& effort) {
  owed_ += timeOf(effort.bytesSent, rates_.sendGBps);
  for (const uint64_t bytes : effort.arrivals) {
    const Nanoseconds whole = timeOf(bytes, rates_.receiveGBps);
    const Nanoseconds last = timeOf(std::min(bytes, kPiece), rates_.receiveGBps);
    const Nanoseconds before = std::min({looked_, timeOf(bytes, rates_.sendGBps), whole - last});
    looked_ -= before;
    owed_ += whole - before;
  }
}

void Host::pay() {
  if (owed_.count() > 0) looked_ = Nanoseconds(0);
  if (owed_.count() > 0) site_.scheduler.sleep(std::exchange(owed_, Nanoseconds(0)));
}

// Where the engine counts passes until something leaves, the thread makes them, less and less often.
bool Host::idle(TimePoint latest) {
  const bool shares = place_.state == Processor::Place::State::works;
  if (shares && owed_.count() > 0) {
    pay();
    return true;
  }
  const TimePoint now = site_.scheduler.now();
  while (!due_.empty() && due_.top() <= now) due_.pop();
  const bool passes = engine_ && engine_->waitsForPasses();
  if (passes) latest = std::min(latest, now + pass_);
  pass_ = passes ? std::min<Nanoseconds>(pass_ * 5 / 4, kMostAtOnce * kLongestPass) : kShortestPass;
  if (!due_.empty()) latest = std::min(latest, due_.top());
  if (shares)
    looked_ = processor_->wait(place_, latest);
  else
    sleepUntil(latest);
  if (passes) makePasses(site_.scheduler.now() - now);
  return passes || (!due_.empty() && due_.top() <= site_.scheduler.now());
}

void Host::sleepUntil(TimePoint latest) {
  busyUntil_ = site_.scheduler.now() + std::exchange(owed_, Nanoseconds(0));
  idles_ = true;
  site_.scheduler.sleepUntil(std::max(busyUntil_, latest));
  idles_ = false;
}

void Host::enter() {
  if (!processor_ || place_.state != Processor::Place::State::away) return;
  place_.task = task_;
  (void)processor_->wait(place_, now());
}

void Host::leave() {
  if (processor_) processor_->leave(place_);
}

// Those that a thread would have made meanwhile: most find nothing, and each for itself would be a step.
void Host::makePasses(Nanoseconds time) {
  const core::EngineEntry in(*engine_, core::EngineEntry::tryOnce);
  for (auto left = std::min<int64_t>(time / kLongestPass, kMostAtOnce); in && left > 1; left--)
    engine_->progress();
}

// Later than now, as the thread may be between its look and its sleep.
void Host::tell(TimePoint when) {
  const TimePoint soonest = site_.scheduler.now() + Nanoseconds(1);
  due_.push(std::max(when, soonest));
  if (processor_) processor_->tell(place_, due_.top());
  if (idles_ && task_) site_.scheduler.wake(*task_, std::max(busyUntil_, due_.top()));
}

}  // namespace weft::sim
