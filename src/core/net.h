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
#include "src/core/lock_order.h"
#include "src/mem/ladder.h"
#include "src/mem/region.h"
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

constexpr int kMaxRecvs = 8;      // receives in one group
constexpr int kMaxRequests = 32;  // NCCL_NET_MAX_REQUESTS: what NCCL may have in flight for each of them
constexpr int kMaxMembers = 8;    // devices in a virtual one
constexpr size_t kMaxMessageBytes = size_t{1} << 30;

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

// What the profiler is told about one message.
struct MessageEvent {
  bool send = false;
  int device = 0;
  int tag = 0;
  size_t bytes = 0;       // posted size at begin, real size at end
  uint64_t sequence = 0;  // the tag's count of this message
};

// Implemented by the plugin; called by whoever posts and tests. begin returns a handle or nullptr for "not
// wanted".
class ProfilerSink {
 public:
  virtual ~ProfilerSink() = default;
  virtual void* begin(void* profilerHandle, const MessageEvent& event) = 0;
  virtual void end(void* event, const MessageEvent& what) = 0;
};

struct ContextOptions {
  int trafficClass = -1;
  std::shared_ptr<ProfilerSink> profiler;  // may be null
  // v11 and later: one of each communicator's ranks. The control thread and the engines live until the last
  // of them is closed, not only while comms do.
  bool perCommunicator = false;
  uint64_t communicator = 0;  // NCCL's hash of it, the same on all its ranks
};

class Runtime;
class Engine;
class Request;
class MemoryHandle;

// One NCCL init. Closing it (destroying the last reference) closes what an abort left behind.
class Context {
 public:
  Context(std::shared_ptr<class Net> net, ContextOptions options, int seat);
  ~Context();
  void hold(std::shared_ptr<Runtime> runtime);  // if it is one of a communicator
  const ContextOptions& options() const { return options_; }
  // Which of this process's ranks of its communicator it is; 0 in most jobs. Ranks with one seat use the same
  // engines, so a second communicator finds the lanes of the first, and ranks that run side by side on
  // threads of one process do not wait for each other.
  int seat() const { return seat_; }
  Net& net() const { return *net_; }

 private:
  std::shared_ptr<Net> net_;
  ContextOptions options_;
  int seat_;
  std::shared_ptr<Runtime> held_;
  std::mutex mutex_;
};
using ContextRef = std::shared_ptr<Context>;

// A place for one connection. Destroying it closes it.
class ListenComm {
 public:
  virtual ~ListenComm() = default;
  virtual int device() const = 0;
};

// What one data call came to. `ok == false`: the comm is broken, `Comm::error` says why, and stays so.
struct Posted {
  bool ok = true;
  Request* request = nullptr;  // null with ok: not now, call again with the same arguments
};
struct Tested {
  bool ok = true;
  bool done = false;
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int device() const = 0;

  // To be called once, before it is destroyed; the deleter of its unique_ptr does. Waits until nothing of it
  // is under way any more: within config.closeTimeout by itself, else its lanes are cut.
  virtual void close() = 0;

  // Valid until deregisterMemory; covers any piece of the range. dmabuf's fd is only used during the call.
  virtual Result<MemoryHandle*> registerMemory(const MemoryDesc& desc) = 0;
  virtual Status deregisterMemory(MemoryHandle* handle) = 0;

  // A request is dead after done. `sizes` (may be null) gets one entry per receive of the group, one for a
  // send.
  virtual Tested test(Request* request, int* sizes) = 0;

  // The sticky error; only when a call said !ok.
  virtual Error error() const = 0;
};

// What a request points to is marked by its lowest two bits. None: an object of the engine's. 2: a receive
// that is no part of a group. 3: nothing; a send that left eagerly is done when it is posted, so its request
// is but its size, and may be tested by anybody at any time. It is never 1, which NCCL has a use for
// (NCCL_NET_OPTIONAL_RECV_COMPLETION).
inline Request* doneSend(size_t bytes) {
  return reinterpret_cast<Request*>(bytes << 2 | 3);
}
inline bool isDoneSend(const Request* request) {
  return (reinterpret_cast<uintptr_t>(request) & 3) == 3;
}
inline int bytesOfDoneSend(const Request* request) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(request) >> 2);
}

// Of whichever comm made the request. NCCL tests a request without naming its comm.
Tested testObject(Request* request, int* sizes);    // as test, of any other request
inline Tested test(Request* request, int* sizes) {  // as Comm::test
  if (!isDoneSend(request)) return testObject(request, sizes);
  if (sizes) *sizes = bytesOfDoneSend(request);
  return {true, true};
}
bool isLive(const Request* request);    // not null and not done yet
Error errorOf(const Request* request);  // the sticky error of its comm, when test said !ok

class SendComm : public Comm {
 public:
  virtual Posted isend(const void* data, size_t bytes, int tag, MemoryHandle* memory,
                       void* profilerHandle) = 0;
};

// Without initial values: arrays of eight are made for every call, of which one is used mostly.
struct ReceiveSpec {
  void* data;
  size_t bytes;
  int tag;
  MemoryHandle* memory;
  void* profilerHandle;
};

class RecvComm : public Comm {
 public:
  virtual Posted irecv(std::span<const ReceiveSpec> receives) = 0;
  // One, which most are: its arguments fit into registers.
  virtual Posted irecvOne(void* data, size_t bytes, int tag, MemoryHandle* memory, void* profilerHandle) = 0;
  // Its receives may stand for as long as they like: no warning says that they wait.
  virtual void mayStand() = 0;
  // Null request with ok: nothing to wait for.
  virtual Posted iflush(std::span<const ReceiveSpec> received) = 0;
};

void giveBack(Comm* comm);  // closes it, which waits, and destroys it, which does not

template <class Closed>
struct CommCloser {
  CommCloser() = default;
  template <class Derived>
  CommCloser(const CommCloser<Derived>&) {}
  void operator()(Closed* comm) const { giveBack(comm); }
};

}  // namespace weft::core

template <>
struct std::default_delete<weft::core::SendComm> : weft::core::CommCloser<weft::core::SendComm> {
  using CommCloser::CommCloser;
};
template <>
struct std::default_delete<weft::core::RecvComm> : weft::core::CommCloser<weft::core::RecvComm> {
  using CommCloser::CommCloser;
};

namespace weft::core {

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

  Result<std::unique_ptr<ListenComm>> listen(const ContextRef& context, int device,
                                             std::span<std::byte, control::kHandleBytes> handleOut);
  // A null comm: call again with the same handle bytes (their scratch part remembers where we are).
  Result<std::unique_ptr<SendComm>> connect(const ContextRef& context, int device,
                                            std::span<std::byte, control::kHandleBytes> handle);
  Result<std::unique_ptr<RecvComm>> accept(ListenComm& listener);

  const Config& config() const { return options_.config; }
  const std::string& tuner() const { return options_.tuner; }
  const Clock& clock() const { return *options_.clock; }
  Result<std::shared_ptr<control::Hub>> makeHub(control::HubOptions options) const;
  void releaseContext(const Context* context);  // called by ~Context
  Transport& transport() const { return *options_.transport; }
  Result<std::shared_ptr<Runtime>> runtime();  // made on first use; lives while someone holds it
  const DeviceInfo& rail(int index) const { return rails_[static_cast<size_t>(index)]; }
  std::vector<int> railsOf(int device) const;
  Transport* localFor(int device) const;             // null: its peers on this host are reached as all others
  mem::CacheOptions cacheOptions(int device) const;  // of its registrations
  const std::vector<mem::GdrVerdict>& gpuDirect() const { return gpuDirect_; }  // one a rail; none: no driver
  std::string whyLocalGpuIdle() const;  // WEFT_LOCAL_GPU is set, and does nothing: why

  explicit Net(NetOptions options) : options_(std::move(options)) {}

 private:
  void settle(const std::shared_ptr<Runtime>& living);
  std::vector<int> membersOf(int device) const;
  Status decideGpuDirect();
  mem::GpuPath gpuPath(const std::vector<int>& rails) const;
  std::string whyNotLocal(int device) const;

  NetOptions options_;
  std::vector<DeviceInfo> rails_;         // what the transport discovered
  std::vector<topo::RailGroup> devices_;  // of rails_
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
