// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/record/service.h"

#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "src/base/fnv.h"
#include "tools/record/timed.h"

namespace weft::record {

namespace {

using trace::Kind;
namespace at = trace::at;

uint64_t numberOf(const void* context) {
  return context != nullptr ? static_cast<const Context*>(context)->number : 0;
}

uint64_t numberOfComm(const void* comm) {
  return comm != nullptr ? static_cast<const Comm*>(comm)->number : 0;
}

uint64_t hashOf(const void* handle) {
  return fnv1a({static_cast<const char*>(handle), NCCL_NET_HANDLE_MAXSIZE});
}

Comm* newComm(Side side, void* real) {
  auto comm = std::make_unique<Comm>();
  comm->real = real;
  comm->side = side;
  comm->number = recorder().newComm();
  return comm.release();
}

// A connect that is tried again is known by its handle's place and by what the last try left there: plugins
// keep their state in it, so only the bytes of the first try are the listener's.
struct Attempt {
  uint64_t handle = 0;
  uint64_t left = 0;
  Waiting waiting;
};

class Attempts {
 public:
  Attempt take(const void* handle) {
    const uint64_t hash = hashOf(handle);
    const std::lock_guard lock(mutex_);
    const auto found = attempts_.find(handle);
    if (found == attempts_.end()) return {hash, hash, {}};
    const Attempt attempt = found->second;
    attempts_.erase(found);
    return attempt.left == hash ? attempt : Attempt{hash, hash, {}};
  }
  void keep(const void* handle, Attempt attempt) {
    attempt.left = hashOf(handle);
    const std::lock_guard lock(mutex_);
    attempts_[handle] = attempt;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, Attempt> attempts_;
};

Attempts& attempts() {
  static Attempts* const all = std::make_unique<Attempts>().release();
  return *all;
}

void count(Waiting* waiting, const Timed& call) {
  if (waiting->calls++ == 0) waiting->since = call.began;
}

uint64_t waited(const Waiting& waiting, const Timed& call) {
  return waiting.calls > 0 ? call.began - waiting.since : 0;
}

}  // namespace

void writeTable(int version, const std::string& text) {
  trace::Event& event = eventOf(Kind::table, {recorder().now(), 0, ncclSuccess});
  event.values[at::kAbi] = static_cast<uint64_t>(version);
  event.text = std::string_view(text).substr(0, trace::kMostText);
  recorder().addAndFlush();
}

namespace {

// `context` is null where the table has none.
Context* newContext(void** context, const Timed& call, void* made) {
  Context* own = nullptr;
  if (context != nullptr && call.result == ncclSuccess) {
    own = std::make_unique<Context>().release();
    own->real = made;
    own->number = recorder().newContext();
  }
  if (context != nullptr) *context = own;
  return own;
}

}  // namespace

ncclResult_t recordInit(Kind kind, void** context, uint64_t commId, int trafficClass,
                        const std::function<ncclResult_t(void** made)>& forward) {
  void* made = nullptr;
  const Timed call = timed([&] { return forward(&made); });
  const Context* own = newContext(context, call, made);
  trace::Event& event = eventOf(kind, call);
  event.values[at::kContext] = numberOf(own);
  event.values[at::kCommId] = commId;
  if (kind == Kind::init) event.values[at::kTrafficClass] = static_cast<uint64_t>(int64_t{trafficClass});
  recorder().addAndFlush();
  return call.result;
}

ncclResult_t recordFinalize(Kind kind, void* context, const Forward& forward) {
  auto* own = static_cast<Context*>(context);
  const Timed call = timed([&] { return forward(realOf<Context>(context)); });
  eventOf(kind, call).values[at::kContext] = numberOf(own);
  recorder().addAndFlush();
  std::unique_ptr<Context>(own).reset();
  return call.result;
}

ncclResult_t recordDevices(int* count, const std::function<ncclResult_t()>& forward) {
  const Timed call = timed(forward);
  if (count != nullptr) eventOf(Kind::devices, call).values[0] = static_cast<uint64_t>(int64_t{*count});
  if (count != nullptr) recorder().add();
  return call.result;
}

ncclResult_t recordMembers(int* device, int count, const int* members,
                           const std::function<ncclResult_t()>& forward) {
  const Timed call = timed(forward);
  trace::Event& event = eventOf(Kind::makeVDevice, call);
  event.values[0] = static_cast<uint64_t>(int64_t{device != nullptr ? *device : -1});
  for (int i = 0; i < count; ++i) event.parts.push_back({static_cast<uint64_t>(members[i]), 0, 0, 0});
  recorder().add();
  return call.result;
}

void writeProperties(const Timed& call, const std::array<uint64_t, trace::kMostFields>& values,
                     const char* name) {
  trace::Event& event = eventOf(Kind::properties, call);
  event.values = values;
  event.text = std::string_view(name != nullptr ? name : "").substr(0, trace::kMostText);
  recorder().add();
}

ncclResult_t refuseDevice(int device) {
  recorder().warn("device " + std::to_string(device) +
                  " moves its data by code on the GPU, which cannot be recorded; run without the recorder");
  return ncclInvalidUsage;
}

ncclResult_t recordListen(Kind kind, void* context, int device, void* handle, void** listenComm,
                          const ForwardTo& forward) {
  if (handle == nullptr || listenComm == nullptr) return ncclInvalidArgument;
  void* made = nullptr;
  const Timed call = timed([&] { return forward(realOf<Context>(context), &made); });
  *listenComm = call.result == ncclSuccess && made != nullptr ? newComm(Side::listen, made) : nullptr;
  if (*listenComm != nullptr) static_cast<Comm*>(*listenComm)->realContext = realOf<Context>(context);
  trace::Event& event = eventOf(kind, call);
  event.values[at::kContext] = numberOf(context);
  event.values[at::kDevice] = static_cast<uint64_t>(device);
  event.values[at::kListenComm] = numberOfComm(*listenComm);
  event.values[at::kListenHandle] = hashOf(handle);
  recorder().add();
  return call.result;
}

ncclResult_t recordGroupConnect(Kind kind, std::span<void* const> handles, int rank, void* listenComm,
                                void** collComm, const ForwardTo& forward) {
  if (listenComm == nullptr || collComm == nullptr) return ncclInvalidArgument;
  for (const void* handle : handles)
    if (handle == nullptr) return ncclInvalidArgument;
  std::string all;  // before the call: a plugin may write into a handle
  for (const void* handle : handles) all.append(static_cast<const char*>(handle), NCCL_NET_HANDLE_MAXSIZE);
  void* made = nullptr;
  const Timed call = timed([&] { return forward(realOf<Comm>(listenComm), &made); });
  *collComm = call.result == ncclSuccess && made != nullptr ? newComm(Side::coll, made) : nullptr;
  trace::Event& event = eventOf(kind, call);
  event.values[at::kCollListen] = numberOfComm(listenComm);
  event.values[at::kCollComm] = numberOfComm(*collComm);
  event.values[at::kCollRank] = static_cast<uint64_t>(rank);
  event.values[at::kCollRanks] = handles.size();
  event.values[at::kCollGroup] = fnv1a(all);
  recorder().addAndFlush();
  return call.result;
}

ncclResult_t recordConnect(void* context, int device, void* handle, void** sendComm,
                           const ForwardTo& forward) {
  if (handle == nullptr || sendComm == nullptr) return ncclInvalidArgument;
  Attempt attempt = attempts().take(handle);
  void* made = nullptr;
  const Timed call = timed([&] { return forward(realOf<Context>(context), &made); });
  *sendComm = nullptr;
  if (call.result == ncclSuccess && made == nullptr) {
    count(&attempt.waiting, call);
    attempts().keep(handle, attempt);
    return call.result;
  }
  if (call.result == ncclSuccess) *sendComm = newComm(Side::send, made);
  trace::Event& event = eventOf(Kind::connect, call);
  event.values[at::kContext] = numberOf(context);
  event.values[at::kDevice] = static_cast<uint64_t>(device);
  event.values[at::kConnectHandle] = attempt.handle;
  event.values[at::kConnectComm] = numberOfComm(*sendComm);
  event.values[at::kConnectNotNow] = attempt.waiting.calls;
  event.values[at::kConnectWaited] = waited(attempt.waiting, call);
  recorder().addAndFlush();
  return call.result;
}

ncclResult_t recordAccept(void* listenComm, void** recvComm, const ForwardTo& forward) {
  auto* own = static_cast<Comm*>(listenComm);
  if (own == nullptr || recvComm == nullptr) return ncclInvalidArgument;
  void* made = nullptr;
  const Timed call = timed([&] { return forward(own->real, &made); });
  *recvComm = nullptr;
  if (call.result == ncclSuccess && made == nullptr) {
    count(&own->waiting, call);
    return call.result;
  }
  if (call.result == ncclSuccess) *recvComm = newComm(Side::recv, made);
  trace::Event& event = eventOf(Kind::accept, call);
  event.values[at::kAcceptListen] = own->number;
  event.values[at::kAcceptComm] = numberOfComm(*recvComm);
  event.values[at::kAcceptNotNow] = own->waiting.calls;
  event.values[at::kAcceptWaited] = waited(own->waiting, call);
  own->waiting = {};
  recorder().addAndFlush();
  return call.result;
}

ncclResult_t recordClose(Kind kind, void* comm, const Forward& forward) {
  auto* own = static_cast<Comm*>(comm);
  const Timed call = timed([&] { return forward(realOf<Comm>(comm)); });
  trace::Event& event = eventOf(kind, call);
  event.values[at::kComm] = numberOfComm(own);
  if (own != nullptr && kind != Kind::closeListen) event.values[1] = own->waiting.calls;
  recorder().addAndFlush();
  std::unique_ptr<Comm>(own).reset();
  return call.result;
}

ncclResult_t recordRegister(const Registered& what, void** mhandle, const ForwardTo& forward) {
  if (mhandle == nullptr) return ncclInvalidArgument;
  void* made = nullptr;
  const Timed call = timed([&] { return forward(realOf<Comm>(what.comm), &made); });
  const auto address = reinterpret_cast<uintptr_t>(what.data);
  Memory* own = nullptr;
  if (call.result == ncclSuccess)
    own = std::make_unique<Memory>(Memory{made, recorder().newMemory(), address}).release();
  *mhandle = own;
  trace::Event& event = eventOf(what.kind, call);
  event.values[at::kComm] = numberOfComm(what.comm);
  event.values[at::kMemory] = own != nullptr ? own->number : 0;
  event.values[at::kAddress] = address;
  event.values[at::kBytes] = what.bytes;
  event.values[at::kType] = static_cast<uint64_t>(what.type);
  if (what.kind == Kind::regMrDmaBuf) event.values[at::kType + 1] = what.offset;
  recorder().add();
  return call.result;
}

ncclResult_t recordDeregister(void* comm, void* mhandle,
                              const std::function<ncclResult_t(void*, void*)>& forward) {
  auto* own = static_cast<Memory*>(mhandle);
  const Timed call = timed([&] { return forward(realOf<Comm>(comm), realOf<Memory>(mhandle)); });
  trace::Event& event = eventOf(Kind::deregMr, call);
  event.values[at::kComm] = numberOfComm(comm);
  event.values[at::kMemory] = own != nullptr ? own->number : 0;
  recorder().add();
  std::unique_ptr<Memory>(own).reset();
  return call.result;
}

bool changes(void* context, const std::array<uint64_t, 11>& attributes) {
  auto* own = static_cast<Context*>(context);
  if (own == nullptr) return true;
  const std::lock_guard lock(own->lock);
  return std::exchange(own->attributes, attributes) != attributes;
}

void writeAttributes(const Timed& call, void* context, const std::array<uint64_t, 11>& attributes) {
  trace::Event& event = eventOf(Kind::setNetAttr, call);
  event.values[at::kContext] = numberOf(context);
  std::copy(attributes.begin(), attributes.end(), event.values.begin() + 1);
  recorder().add();
}

}  // namespace weft::record
