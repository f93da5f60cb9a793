// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/control/handle.h"
#include "src/core/comm_api.h"
#include "src/core/lock_order.h"
#include "src/mem/ladder.h"
#include "src/mem/region.h"
#include "src/stats/profile.h"
#include "src/topo/rail_groups.h"
#include "weft/transport.h"

// The point-to-point protocol as its users see it: plugin/ (NCCL's calls), tools and tests. One Net per
// plugin life; it finds the devices and starts nothing. Threads and links exist only while a comm, a listener
// or a held Context needs them. Every call may come from any thread and none of connect, accept, isend,
// irecv, test or iflush blocks.
namespace weft::control {
class Hub;
struct HubOptions;
}  // namespace weft::control

namespace weft::core {

// What NCCL is told about one device. Strings live as long as the Net.
struct Properties {
  std::string name;
  std::string pciPath;  // empty: none
  uint64_t guid = 0;
  bool cudaMemory = false;
  bool dmabufMemory = false;
  bool regIsGlobal = true;
  bool forceFlush = false;
  int speedMbps = 0;
  int port = 0;
  float latencyUs = 0;
  int maxComms = 0;
  int maxRecvs = kMaxRecvs;
  size_t maxP2pBytes = kMaxMessageBytes;
  size_t maxCollBytes = kMaxMessageBytes;
  int railId = -1;
  int planeId = -1;
  bool lines128InOrder = false;
  std::vector<int> members;        // devices it was merged of at NCCL's request; itself for any other
  std::vector<std::string> rails;  // the cards it drives
  std::string grouping;            // why it is these
  std::string sameHost;            // whether peers on this host are reached through shared memory, or why not
  std::string gpuDirect;           // whether GPU memory goes without a copy, and why not; empty: no driver
};

struct NetOptions {
  Config config;
  std::shared_ptr<Transport> transport;
  const Clock* clock = &Clock::system();
  int maxMembers = kMaxMembers;
  std::vector<DeviceInfo> devices;   // what the transport discovered already; empty: create asks it
  std::shared_ptr<Transport> local;  // for peers on this host; null: they are reached as all others
  std::string whyNotLocal;           // then
  std::string tuner;  // what the tuner decided, in words that must be the same on both ends; empty: no tuner
  // Makes the hub of each runtime; empty: control::Hub::create.
  std::function<Result<std::shared_ptr<control::Hub>>(control::HubOptions)> makeHub;
};

class Net : public std::enable_shared_from_this<Net> {
 public:
  // Takes the devices given, or finds them. No device is not an error: deviceCount() is 0.
  static Result<std::shared_ptr<Net>> create(NetOptions options);

  // Those we formed of cards that belong together, then the virtual ones. What NCCL calls physical is one of
  // the former: it knows nothing of their rails.
  int deviceCount() const;
  Result<Properties> properties(int device) const;
  Result<int> makeVirtual(std::span<const int> members);  // the new device's index

  ContextRef openContext(ContextOptions options);
  void closeContext(const Context* context);  // Context::close

  Result<std::unique_ptr<ListenComm>> listen(const ContextRef& context, int device,
                                             std::span<std::byte, control::kHandleBytes> handleOut);
  // A null comm: call again with the same handle bytes (their scratch part remembers where we are).
  Result<std::unique_ptr<SendComm>> connect(const ContextRef& context, int device,
                                            std::span<std::byte, control::kHandleBytes> handle);
  Result<std::unique_ptr<RecvComm>> accept(ListenComm& listener);

  const Config& config() const { return options_.config; }
  const std::string& tuner() const { return options_.tuner; }
  const Clock& clock() const { return *options_.clock; }
  stats::Profile* profile() const { return profile_.get(); }  // null: nobody wants one
  // At the end of the process, or of the library in it.
  void writeProfile();
  Result<std::shared_ptr<control::Hub>> makeHub(control::HubOptions options) const;
  void releaseContext(const Context* context);  // called by ~Context
  Transport& transport() const { return *options_.transport; }
  Result<std::shared_ptr<Runtime>> runtime();  // made on first use; lives while someone holds it
  std::shared_ptr<Runtime> livingRuntime();    // null: nothing is connected
  const DeviceInfo& rail(int index) const { return rails_[static_cast<size_t>(index)]; }
  std::vector<int> railsOf(int device) const;
  Transport* localFor(int device) const;             // null: its peers on this host are reached as all others
  mem::CacheOptions cacheOptions(int device) const;  // of its registrations
  const std::vector<mem::GdrVerdict>& gpuDirect() const { return gpuDirect_; }  // one a rail; none: no driver
  std::string whyLocalGpuIdle() const;  // WEFT_LOCAL_GPU is set, and does nothing: why

  explicit Net(NetOptions options) : options_(std::move(options)) {}

 private:
  Error noSuchDevice(int device) const;
  void settle(const std::shared_ptr<Runtime>& living);
  std::vector<int> membersOf(int device) const;
  Status decideGpuDirect();
  mem::GpuPath gpuPath(const std::vector<int>& rails) const;
  std::string whyNotLocal(int device) const;

  void openProfile();

  NetOptions options_;
  std::shared_ptr<stats::Profile> profile_;  // outlives the runtimes, which hold the net
  std::vector<DeviceInfo> rails_;            // what the transport discovered
  std::vector<topo::RailGroup> devices_;     // of rails_
  std::shared_ptr<const mem::gpu::Driver> driver_;
  std::vector<mem::GdrVerdict> gpuDirect_;  // of rails_; fixed from create on, as NCCL was told
  mutable OrderedMutex mutex_{LockRank::devices};
  std::vector<std::vector<int>> virtuals_;
  std::set<std::pair<uint64_t, int>> seats_;  // taken: communicator, seat
  OrderedMutex runtimeMutex_{LockRank::net};
  std::weak_ptr<Runtime> runtime_;
  std::shared_ptr<Runtime> connecting_;  // while a connection is being made: nobody else may hold it yet
};

}  // namespace weft::core
