// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "src/control/hub.h"
#include "src/core/engine.h"
#include "src/core/lock_order.h"
#include "src/core/net.h"
#include "src/core/pending.h"
#include "src/core/state_report.h"

// What lives while anything is connected: the hub with its thread, the opened devices, the engines, and
// connections being made. Held by comms, listeners and v11+ contexts; the last of them ends it. Thread-safe.
namespace weft::core {

// Routes control messages to engines, keeps idle ones moving, and ends connections that NCCL has given up.
// Owned by the hub (it is its Handler), so that nothing the control thread runs can be the last owner of the
// Runtime.
class Router final : public control::Handler {
 public:
  Router(const Config& config, std::shared_ptr<PendingTable> pending)
      : config_(config), pending_(std::move(pending)) {}
  void add(const std::shared_ptr<Engine>& engine);
  void onMessage(const control::PeerRef& peer, uint16_t type, std::span<const std::byte> body) override;
  void onPeerDead(const control::PeerRef& peer, const Error& reason) override;
  Milliseconds onTick(TimePoint now) override;

 private:
  struct Known {
    std::weak_ptr<Engine> engine;
    TimePoint watchedAt{};  // of the tick alone
  };
  struct Turn {
    std::shared_ptr<Engine> engine;
    Known* known;  // stays while the engine lives
  };

  void dropGivenUp(TimePoint now);
  bool nudge(const Turn& turn, TimePoint now) const;
  std::vector<Turn> living();

  const Config config_;
  const std::shared_ptr<PendingTable> pending_;
  OrderedMutex mutex_{LockRank::router};
  std::map<uint32_t, Known> engines_;  // in the order they were made, in which they get their turns
  Milliseconds pause_{1};
  TimePoint freedLookedAt_{};
};

class Runtime final : public std::enable_shared_from_this<Runtime>, private stats::ProfileSource {
 public:
  static Result<std::shared_ptr<Runtime>> create(std::shared_ptr<Net> net);
  explicit Runtime(std::shared_ptr<Net> net);
  ~Runtime();

  Net& net() const { return *net_; }
  control::Hub& hub() const { return *hub_; }

  // The engine that a context uses on a device, made on first use.
  Result<std::shared_ptr<Engine>> engineFor(const ContextRef& context, int device);

  PendingTable& pending() const { return *pending_; }
  bool connecting() const { return pending_->size() > 0; }

  // Waits, by the clock, until the comms that were handed to the engines are closed: each has its deadlines.
  void awaitClosing();

  // What every comm of this process is doing, and waits for. Waits for its turn in each engine.
  std::string stateText();

  // What stands on comms and tells of itself in the state, too. It does so until the result is destroyed,
  // which waits for a call of `tell` that goes on; `tell` may take locks of its owner, whose holders must not
  // come here.
  class Told {
   public:
    Told(std::shared_ptr<Runtime> runtime, uint64_t number) : runtime_(std::move(runtime)), number_(number) {}
    ~Told();
    Told(const Told&) = delete;
    Told& operator=(const Told&) = delete;

   private:
    const std::shared_ptr<Runtime> runtime_;
    const uint64_t number_;
  };
  static std::unique_ptr<Told> tellState(std::shared_ptr<Runtime> runtime, std::function<std::string()> tell);

 private:
  struct DeviceUse {
    std::vector<std::shared_ptr<Device>> rails;
    std::shared_ptr<Device> local;  // may be null
    std::shared_ptr<mem::RegionCache> regions;
  };
  // Ranks of one seat, and of one traffic class, share their engines for the runtime's life. A table without
  // contexts (v10 and older) does not say which communicator a call is of, so each thread that connects has
  // engines of its own there, for as long as it has comms.
  struct EngineKey {
    int device;
    int trafficClass;
    int seat;
    uint32_t thread;  // 0 with contexts
    auto operator<=>(const EngineKey&) const = default;
  };
  struct KnownEngine {
    std::weak_ptr<Engine> engine;
    std::shared_ptr<Engine> kept;
  };

  void openStats();
  void addTo(stats::ProfileSums* sums) override;
  Status reportState();
  std::vector<std::shared_ptr<Engine>> living();
  std::shared_ptr<Engine> usable(const EngineKey& key);  // null: there is none, or its card is lost
  void keepEngine(const EngineKey& key, const std::shared_ptr<Engine>& engine, bool forever);
  Result<std::shared_ptr<Engine>> makeEngine(const ContextOptions& of, int device);
  Result<DeviceUse> openDevice(int device);
  Status openLocal(int device, DeviceUse* use) const;

  std::shared_ptr<Net> net_;
  WindowPool windows_;
  std::mutex tellersMutex_;
  std::map<uint64_t, std::function<std::string()>> tellers_;
  uint64_t toldBy_ = 0;  // tellers ever
  stats::RailSums rails_;
  std::unique_ptr<stats::StatsFile>
      stats_;  // null: switched off; before the engines, whose comms write there
  const std::shared_ptr<PendingTable> pending_ = std::make_shared<PendingTable>();
  std::shared_ptr<Router> router_;
  OrderedMutex opening_{LockRank::opening};  // of what follows, which fabrics may take long to make
  std::map<int, std::weak_ptr<Device>> physical_;
  std::map<int, DeviceUse> devices_;
  OrderedMutex mutex_{LockRank::runtime};  // of what follows
  std::map<EngineKey, KnownEngine> engines_;
  std::map<std::string, std::shared_ptr<mem::RegionCache>> caches_;  // by the device's name
  std::shared_ptr<control::Hub> hub_;                                // its thread uses the router
  std::unique_ptr<StateReport> report_;                              // last: its thread uses all of this
};

}  // namespace weft::core
