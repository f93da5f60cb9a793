// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/plugin.h"

#include <algorithm>
#include <type_traits>
#include <unordered_map>

#include "plugin/fabric.h"
#include "plugin/logger.h"
#include "plugin/profiler.h"
#include "src/base/emergency_pool.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/reserve.h"

// The registry behind plugin.h: contexts, and every object that NCCL holds.
namespace weft::plugin {

namespace {

constinit Plugin instance;
static_assert(std::is_trivially_destructible_v<Plugin>);

// Runs at exit, and at dlclose when nothing is held (self_reference.h). NCCL's tables before v11 have no
// finalize, so their objects can only go here.
[[gnu::destructor]] void unloadLibrary() {
  instance.unload();
  if (instance.isEmpty()) giveBackEmergencyPool();
}

// By NCCL's pointer. The map owns the objects.
using HeldMap = std::unordered_map<const void*, std::unique_ptr<Held>>;

Error notOurs(const char* operation, const void* pointer) {
  return Error(Code::invalidArgument, operation,
               format("%p was not made by this plugin, or is closed already", pointer));
}

// The operation, for an error about a pointer that is not ours.
const char* kindName(Kind kind) {
  switch (kind) {
    case Kind::context:
      return "closing a context";
    case Kind::listener:
      return "closing a listener";
    case Kind::send:
      return "closing a sending comm";
    case Kind::receive:
      return "closing a receiving comm";
    case Kind::group:
      return "closing a collective group";
    case Kind::team:
      return "closing the ranks of one-sided operations";
    case Kind::rmaContext:
      return "closing a context of one-sided operations";
  }
  return "closing";
}

// Null where the fabric has no device.
core::ContextRef openCoreContext(const Fabric& fabric, core::ContextOptions options,
                                 ncclProfilerCallback_t profiler) {
  if (!fabric.net()) return nullptr;
  options.profiler = makeProfiler(profiler, fabric.net()->transport().name());
  return fabric.net()->openContext(std::move(options));
}

}  // namespace

// Members in the order in which they are made; the last is destroyed first.
struct Plugin::Life {
  // The process-wide context of one traffic class and profiler (v6 to v10).
  struct SharedContext {
    int trafficClass;
    ncclProfilerCallback_t profiler;
    core::ContextRef context;
  };

  // Of an init whose use goes on. A table without finalize has no context, and never says when its use ends.
  struct Logging {
    const void* context;
    ncclDebugLogger_t logger;
  };

  ForkGuard forkGuard;
  std::unique_ptr<Fabric> fabric = Fabric::discover();
  ncclProfilerCallback_t sharedProfiler = nullptr;  // of the last init of such a table
  std::vector<SharedContext> shared;
  std::vector<Logging> loggers;  // oldest first
  // Every object that NCCL holds, by its pointer.
  HeldMap held;

  // A shared context is made at its first use, and kept to the end.
  core::ContextRef sharedContext(int trafficClass) {
    for (const SharedContext& entry : shared)
      if (entry.trafficClass == trafficClass && entry.profiler == sharedProfiler) return entry.context;
    core::ContextOptions options;
    options.trafficClass = trafficClass;
    core::ContextRef context = openCoreContext(*fabric, std::move(options), sharedProfiler);
    if (context) shared.push_back({trafficClass, sharedProfiler, context});
    return context;
  }

  // There is room for it.
  void addLogger(const void* context, ncclDebugLogger_t logger) {
    if (!logger) return;
    if (!context)
      std::erase_if(loggers, [&](const Logging& of) { return !of.context && of.logger == logger; });
    loggers.push_back({context, logger});
  }

  // The oldest of that pointer: a later context may be where this one was.
  void removeLogger(const void* context) {
    const auto of = [&](const Logging& logging) { return logging.context == context; };
    const auto found = std::find_if(loggers.begin(), loggers.end(), of);
    if (found != loggers.end()) loggers.erase(found);
  }

  // Null: the pointer is not ours, is closed already, or is of another kind.
  Held* find(const void* pointer, Kind kind) const {
    const auto entry = held.find(pointer);
    return entry != held.end() && entry->second->kind() == kind ? entry->second.get() : nullptr;
  }

  std::unique_ptr<Held> take(const void* pointer) { return std::move(held.extract(pointer).mapped()); }

  // Everything that was made with this context. The caller destroys it without the lock.
  std::vector<std::unique_ptr<Held>> takeAllOf(const HeldContext* owner) {
    std::vector<std::unique_ptr<Held>> taken;
    for (auto entry = held.begin(); entry != held.end();) {
      const bool owned = entry->second->owner() == owner;
      if (owned) taken.push_back(std::move(entry->second));
      entry = owned ? held.erase(entry) : std::next(entry);
    }
    return taken;
  }
};

namespace {

// Receivers are closed first. Their senders may be among these objects as well: they are then still there to
// say what they have sent, and do not seem to have closed too early.
void closeLeftovers(std::vector<std::unique_ptr<Held>>* leftovers) {
  if (leftovers->empty()) return;
  WEFT_LOG(info, "closing %zu connections that their communicator left open", leftovers->size());
  for (const bool receivers : {true, false})
    for (std::unique_ptr<Held>& one : *leftovers)
      if (one && (!receivers || one->kind() == Kind::receive)) {
        one->close();
        one.reset();
      }
}

}  // namespace

Plugin& Plugin::get() {
  return instance;
}

Plugin::Life& Plugin::life() {
  if (!life_) life_ = std::make_unique<Life>().release();
  return *life_;
}

Result<Plugin::Life*> Plugin::started() {
  if (life_) return life_;
  return Error(Code::invalidArgument, "looking up the devices", "init was not called");
}

// While it lives the new logger hears what is found. Then the newest one has it of which the use goes on,
// which is another one where the init came to nothing.
class Plugin::Logs {
 public:
  Logs(Plugin& plugin, ncclDebugLogger_t logger) : plugin_(plugin) { useLogger(logger); }
  ~Logs() { plugin_.useNewestLogger(); }
  Logs(const Logs&) = delete;
  Logs& operator=(const Logs&) = delete;

 private:
  Plugin& plugin_;
};

Status Plugin::start(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler) {
  std::lock_guard lock(mutex_);
  const Logs logs(*this, logger);
  Life& state = life();
  state.loggers.reserve(state.loggers.size() + 1);
  state.addLogger(nullptr, logger);
  state.sharedProfiler = profiler;
  return {};
}

Result<void*> Plugin::openContext(uint64_t communicator, int trafficClass, ncclDebugLogger_t logger,
                                  ncclProfilerCallback_t profiler) {
  // Makes the context's own reference cheap: no call of the loader with our lock held.
  const SelfReference first;
  std::lock_guard lock(mutex_);
  const Logs logs(*this, logger);
  Life& state = life();
  state.loggers.reserve(state.loggers.size() + 1);
  core::ContextOptions options;
  options.trafficClass = trafficClass;
  options.perCommunicator = true;
  options.communicator = communicator;
  auto context = std::make_unique<HeldContext>(openCoreContext(*state.fabric, std::move(options), profiler));
  void* pointer = context.get();
  state.held.emplace(pointer, std::move(context));
  state.addLogger(pointer, logger);
  return pointer;
}

// The objects leave the registry under the lock, and are closed without it.
Status Plugin::closeContext(void* pointer) {
  const MustNotFail closing;
  std::unique_ptr<Held> context;
  std::vector<std::unique_ptr<Held>> leftovers;
  {
    std::lock_guard lock(mutex_);
    const Held* found = life_ ? life_->find(pointer, Kind::context) : nullptr;
    if (!found) return notOurs(kindName(Kind::context), pointer);
    context = life_->take(pointer);
    leftovers = life_->takeAllOf(static_cast<const HeldContext*>(found));
  }
  closeLeftovers(&leftovers);
  context->close();
  context.reset();
  std::lock_guard lock(mutex_);
  if (life_) life_->removeLogger(pointer);
  useNewestLogger();
  return {};
}

// A logger belongs to a copy of NCCL that may be unloaded once its last context is closed. There may be other
// copies, whose use goes on.
void Plugin::useNewestLogger() {
  if (life_ && !life_->loggers.empty()) return useLogger(life_->loggers.back().logger);
  dropLogger();
}

Result<ContextFound> Plugin::find(const ContextChoice& choice) {
  std::lock_guard lock(mutex_);
  TRY(Life * state, started());
  ContextFound found;
  if (choice.perCommunicator) {
    const Held* held = state->find(choice.pointer, Kind::context);
    if (!held) return notOurs("looking up a context", choice.pointer);
    found.held = static_cast<const HeldContext*>(held);
    found.context = found.held->context();
  } else {
    found.context = state->sharedContext(choice.trafficClass);
  }
  if (found.context) return found;
  return Error(Code::unavailable, "looking up a context", "there is no device; the log of init says why");
}

Result<int> Plugin::deviceCount() {
  std::lock_guard lock(mutex_);
  TRY(Life * state, started());
  return state->fabric->deviceCount();
}

Result<const Config*> Plugin::config() {
  std::lock_guard lock(mutex_);
  TRY(Life * state, started());
  return state->fabric->net() ? &state->fabric->net()->config() : nullptr;
}

Result<const core::Properties*> Plugin::properties(int device) {
  std::lock_guard lock(mutex_);
  TRY(Life * state, started());
  return state->fabric->properties(device);
}

// A few numbers are compared, and the driver of a GPU is asked for some of its properties: nothing is opened.
Result<int> Plugin::makeVirtual(std::span<const int> members) {
  std::lock_guard lock(mutex_);
  TRY(Life * state, started());
  return state->fabric->makeVirtual(members);
}

tuner::Policy Plugin::tunerPolicy() {
  std::lock_guard lock(mutex_);
  if (life_ && life_->fabric->deviceCount() > 0) return life_->fabric->tunerPolicy();
  return tuner::decide(Config(), tuner::Surroundings());
}

// keep() may be the first call of a life, so it makes one.
void* Plugin::keep(std::unique_ptr<Held> object) {
  std::lock_guard lock(mutex_);
  void* pointer = object.get();
  life().held.emplace(pointer, std::move(object));
  return pointer;
}

Result<std::unique_ptr<Held>> Plugin::release(void* pointer, Kind kind) {
  std::lock_guard lock(mutex_);
  if (!life_ || !life_->find(pointer, kind)) return notOurs(kindName(kind), pointer);
  return life_->take(pointer);
}

// A lock that is taken means that another thread is in a call while the process exits: everything stays.
void Plugin::unload() {
  const MustNotFail closing;
  if (inForkedChild()) return;
  std::unique_ptr<Life> last;  // goes after the lock, as its fabric closes devices
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !life_) return;
  // Connections that are open at exit stay so, and have counted. NCCL's logger may be gone by now.
  if (const auto& net = life_->fabric->net(); net && net->profile()) {
    dropLogger();
    net->writeProfile();
  }
  if (!life_->held.empty()) return;
  dropLogger();
  last.reset(std::exchange(life_, nullptr));
}

}  // namespace weft::plugin
