// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "src/mem/region.h"
#include "src/stats/layout.h"
#include "weft/transport.h"

// Comms and their requests as NCCL's calls see them: what connect and accept hand out (net.h), and what is
// done with it. Data calls come from one thread at a time and never block; register and close come from any.
namespace weft::core {

class Net;

constexpr int kMaxRecvs = 8;      // receives in one group
constexpr int kMaxRequests = 32;  // NCCL_NET_MAX_REQUESTS: what NCCL may have in flight for each of them
constexpr int kMaxMembers = 8;    // devices in a virtual one
constexpr size_t kMaxMessageBytes = size_t{1} << 30;
constexpr uint32_t kPlacedAtOnce = 16;  // placed messages of a comm under way

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

// One NCCL init. Its last reference drops the connections that an abort left half made.
class Context {
 public:
  Context(std::shared_ptr<Net> net, ContextOptions options, int seat);
  ~Context();
  void hold(std::shared_ptr<Runtime> runtime);  // if it is one of a communicator
  // To be called before the last reference goes: drops its half-made connections, and waits until what was
  // handed to the engines for closing is over. Without it that is cut off where the engines go as well.
  void close();
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

inline constexpr const char* kOwnerSays = "collective group: ";

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int device() const = 0;

  // To be called before it is destroyed; again is harmless. Waits until nothing of it is under way any more:
  // within config.closeTimeout by itself, else its lanes are cut. Where nobody has called it, the deleter of
  // its unique_ptr hands the comm to its engine, which closes it with its poll passes, and waits for nothing.
  // The fabric may work on its memory until then: whoever lets it go so has handed over that memory as well.
  virtual void close() = 0;
  // Memory on which the fabric works. It goes after the comm, when that is closed or its engine has ended.
  virtual void keep(std::shared_ptr<const void> memory) = 0;

  // Valid until deregisterMemory; covers any piece of the range. dmabuf's fd is only used during the call.
  virtual Result<MemoryHandle*> registerMemory(const MemoryDesc& desc) = 0;
  virtual Status deregisterMemory(MemoryHandle* handle) = 0;

  // A request is dead after done. `sizes` (may be null) gets one entry per receive of the group, one for a
  // send.
  virtual Tested test(Request* request, int* sizes) = 0;

  // The sticky error; only when a call said !ok, or hasFailed().
  virtual Error error() const = 0;

  // What its owner may know without a data call; any thread.
  virtual bool hasFailed() const = 0;
  virtual bool isLeft() = 0;  // the other end closed it, failed or not: nothing more comes
  // Ends it for a reason of its owner's. The other end hears of it by the control link, behind all that was
  // said before and also where no lane is up: the detail of its error is kOwnerSays and then `why`.
  virtual void fail(const std::string& why) = 0;

  // What the owner counts of one-sided operations, as their only writer; null: nothing is counted. Valid as
  // long as the comm.
  virtual stats::OneSided* oneSided() = 0;
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
// Of a receive that may be there already: as test, without a poll for what is not.
Tested testArrived(Request* request, int* sizes);
bool isLive(const Request* request);    // not null and not done yet
Error errorOf(const Request* request);  // the sticky error of its comm, when test said !ok

class SendComm : public Comm {
 public:
  virtual Posted isend(const void* data, size_t bytes, int tag, MemoryHandle* memory,
                       void* profilerHandle) = 0;
  // As isend. The next message follows at once, so a small one may wait and leave with it, where each post is
  // a system call: leaveNow() lets it go, and so does the next poll.
  virtual Posted isendFollowed(const void* data, size_t bytes, int tag, MemoryHandle* memory) = 0;
  // What waits for others leaves now.
  virtual void leaveNow() = 0;
  // Whether the receiver has opened memory to this end by that number, and not shut it since.
  virtual bool isOpen(uint32_t number) = 0;
  // A message that lands in that memory from `offset` on. It takes a receive of irecvPlaced. Where the memory
  // was shut meanwhile the message is sent empty, and its bytes go nowhere.
  virtual Posted isendPlaced(const void* data, size_t bytes, int tag, MemoryHandle* memory, uint32_t number,
                             uint64_t offset) = 0;
  // The peer's receives may stand for as long as they like: no warning says that this end is late.
  virtual void mayStand() = 0;
  // Its messages' bytes may change while they are under way, as others may write to the same memory: so they
  // are not summed up (WEFT_CHECKSUM). Before the first message.
  virtual void mayChange() = 0;
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
  // As mayStand, and that they are open does not say that anybody waits: the other end may have nothing to
  // say.
  virtual void mayIdle() = 0;
  virtual void mayChange() = 0;  // as of a SendComm
  // Lets the sender place messages in [at, at + bytes) of that memory, which it names by `number`; again is
  // harmless. False: not on this fabric, not as long as so many comms do, or not now.
  virtual bool openMemory(MemoryHandle* handle, const void* at, size_t bytes, uint32_t number) = 0;
  // Asks the sender to place nothing more there; again, or of memory that was never opened, it is harmless.
  virtual void shutMemory(MemoryHandle* handle) = 0;
  // Nothing more lands there.
  virtual bool isShut(MemoryHandle* handle) = 0;
  // A receive for a placed message of at most so many bytes, after openMemory. Its size may be less than what
  // was sent (isendPlaced). It may stand when the other end closes. Null with ok: not now, or there are
  // kPlacedAtOnce. All placed messages of a comm have one tag.
  virtual Posted irecvPlaced(size_t most, int tag) = 0;
  // Null request with ok: nothing to wait for.
  virtual Posted iflush(std::span<const ReceiveSpec> received) = 0;
};

// Destroys a comm that is closed, and hands any other one to its engine. Null is harmless; not inside the
// engine.
void giveBack(SendComm* comm);
void giveBack(RecvComm* comm);

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
