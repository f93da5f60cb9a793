// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/rma.h"

#include <cstdint>

#include "plugin/calls.h"
#include "plugin/guard.h"
#include "plugin/plugin.h"
#include "plugin/properties.h"
#include "plugin/ranks.h"
#include "src/base/log.h"

// The calls of one-sided operations: arguments checked, NCCL's numbers translated, and teams kept in the
// registry.
namespace weft::plugin {

namespace {

// A context of these tables belongs to a communicator, whose hash is mixed with this mark: it takes no seat
// of the network's context of the same rank.
constexpr uint64_t kRmaMark = 0x7765'6674'0072'6d61;

// NCCL's context where there is no device. NCCL does not close it, so it is no object of the registry.
char noContext;

ncclResult_t rmaFailed(const char* call, const Error& error) {
  return report(call, error, LogLevel::error);
}

HeldTeam* teamOf(void* pointer) {
  return static_cast<HeldTeam*>(heldOf(pointer, Kind::team));
}

HeldRmaContext* rmaContextOf(void* pointer) {
  return static_cast<HeldRmaContext*>(heldOf(pointer, Kind::rmaContext));
}

// Devices of several cards that NCCL made are not counted: it asks for physical ones only.
Result<int> usableDevices() {
  TRY(const int all, Plugin::get().deviceCount());
  int usable = 0;
  for (int device = 0; device < all; device++) {
    TRY(const core::Properties* properties, Plugin::get().properties(device));
    if (properties->members.size() <= 1) usable++;
  }
  return usable;
}

}  // namespace

ncclResult_t countRmaDevices(int* count) {
  return guard("devices", [&]() -> Status {
    if (!count) return refused("counting devices", "no place for the answer");
    *count = 0;
    TRY(*count, usableDevices());
    return {};
  });
}

// The registry has to be started before devices can be counted, and a context starts it; it is given back
// where there is none.
ncclResult_t openRmaContext(void** context, uint64_t communicator, ncclDebugLogger_t logger) {
  return guard("init", [&]() -> Status {
    if (!context) return refused("opening a context", "no place for the context");
    *context = nullptr;
    TRY(void* opened, Plugin::get().openContext(communicator ^ kRmaMark, core::ContextOptions().trafficClass,
                                                logger, nullptr));
    const auto usable = usableDevices();
    *context = opened;
    if (usable && *usable > 0) return {};
    *context = &noContext;
    return Plugin::get().closeContext(opened);
  });
}

ncclResult_t closeRmaContext(void* context) {
  return context == &noContext ? ncclSuccess : closeContext(context);
}

// NCCL's proxy for device-initiated puts is told by the type of device that the host drives it.
ncclResult_t rmaDeviceProperties(int device, ncclNetProperties_v12_t* properties) {
  return guard("getProperties", [&]() -> Status {
    TRY(writeProperties(device, properties));
    properties->netDeviceType = NCCL_NET_DEVICE_GIN_PROXY;
    return {};
  });
}

// Signals are added by the receiving process, each behind the puts of its own sender only.
ncclResult_t rmaProperties(void* /*collComm*/, ncclRmaProperties_v16_t* properties) {
  return guard("getRmaProperties", [&]() -> Status {
    if (!properties) return refused("asking for properties", "no place for the answer");
    properties->flushesAllPutsOnAnySignal = false;
    return {};
  });
}

ncclResult_t connectTeam(void* handles[], int ranks, int rank, void* listenComm, void** collComm) {
  return guard("connect", [&]() -> Status {
    auto* listener = static_cast<HeldListener*>(heldOf(listenComm, Kind::listener));
    if (collComm) *collComm = nullptr;
    TRY(coll::MeshOptions options,
        ranksOf("connecting the ranks of one-sided operations", handles, ranks, rank, listener, collComm));
    options.timeout = listener->net().config().connectTimeout;
    TRY(auto team, rma::Team::open(std::move(options)));
    *collComm = Plugin::get().keep(std::make_unique<HeldTeam>(listener->owner(), std::move(team)));
    return {};
  });
}

// The registry gives the team up first, so that no lock is held while it says goodbye and waits.
ncclResult_t closeTeam(void* collComm) {
  return guard("closeColl", [&]() -> Status {
    if (!collComm) return {};
    TRY(const std::unique_ptr<Held> dying, Plugin::get().release(collComm, Kind::team));
    dying->close();
    return {};
  });
}

ncclResult_t createRmaContext(void* collComm, int contexts, void** rmaContext) {
  return guard("createContext", [&]() -> Status {
    constexpr const char* kMaking = "making a context of one-sided operations";
    if (!rmaContext) return refused(kMaking, "no place for the context");
    *rmaContext = nullptr;
    const HeldTeam* held = teamOf(collComm);
    if (!held) return refused(kMaking, "the comm is null or not of this plugin");
    if (contexts < 1) return refused(kMaking, "it has no context inside");
    *rmaContext =
        Plugin::get().keep(std::make_unique<HeldRmaContext>(held->owner(), held->shared(), contexts));
    return {};
  });
}

ncclResult_t destroyRmaContext(void* rmaContext) {
  return guard("destroyContext", [&]() -> Status {
    if (!rmaContext) return {};
    TRY(const std::unique_ptr<Held> dying, Plugin::get().release(rmaContext, Kind::rmaContext));
    return {};
  });
}

namespace {

// The memory as NCCL describes it. A fault here is told to the other ranks, which wait for this one.
Result<MemoryDesc> described(MemoryDesc desc, int type, uint64_t flags) {
  TRY(checkMemory("registering a window", desc, type));
  desc.strictOrder = (flags & NCCL_NET_MR_FLAG_FORCE_SO) != 0;
  return desc;
}

ncclResult_t registerMemory(const char* call, void* collComm, const MemoryDesc& desc, int type,
                            uint64_t flags, void** mhandle) {
  return guard(call, [&]() -> Status {
    if (!mhandle) return refused("registering a window", "no place for the registration");
    *mhandle = nullptr;
    HeldTeam* held = teamOf(collComm);
    if (!held) return refused("registering a window", "the comm is null or not of this plugin");
    TRY(*mhandle, held->team().registerMemory(described(desc, type, flags),
                                              (flags & NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET) != 0));
    return {};
  });
}

}  // namespace

ncclResult_t registerWindow(void* collComm, void* data, size_t bytes, int type, uint64_t flags,
                            void** mhandle) {
  return registerMemory("regMrSym", collComm, rangeOf(data, bytes, type), type, flags, mhandle);
}

ncclResult_t registerWindowDmaBuf(void* collComm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                                  uint64_t flags, void** mhandle) {
  return registerMemory("regMrSymDmaBuf", collComm, dmaBufOf(data, bytes, offset, fd), type, flags, mhandle);
}

ncclResult_t deregisterWindow(void* collComm, void* mhandle) {
  return guard("deregMrSym", [&]() -> Status {
    if (!mhandle) return {};
    HeldTeam* held = teamOf(collComm);
    if (!held) return refused("deregistering a window", "the comm is null or not of this plugin");
    return held->team().deregisterMemory(static_cast<rma::Window*>(mhandle));
  });
}

namespace {

// The context of a data call; null: `why` says what is wrong with it.
HeldRmaContext* contextOf(void* rmaContext, int context, void** request, const char** why) {
  *why = "no place for the request";
  if (!request) return nullptr;
  *request = nullptr;
  HeldRmaContext* held = rmaContextOf(rmaContext);
  *why = "the context is null, or not one of this plugin's one-sided operations";
  if (!held) return nullptr;
  *why = "the number of the context is not one of those that were made";
  return context >= 0 && context < held->contexts() ? held : nullptr;
}

rma::Put putOf(const RmaCall& call) {
  rma::Put put;
  put.rank = call.rank;
  put.context = static_cast<uint32_t>(call.context);
  put.bytes = call.bytes;
  put.source = static_cast<rma::Window*>(call.sourceMhandle);
  put.sourceOffset = call.sourceOffset;
  put.target = static_cast<rma::Window*>(call.targetMhandle);
  put.targetOffset = call.targetOffset;
  return put;
}

ncclResult_t start(const char* name, const Result<rma::Request*>& begun, void** request) {
  if (!begun) [[unlikely]]
    return rmaFailed(name, begun.error());
  *request = *begun;
  return ncclSuccess;
}

}  // namespace

ncclResult_t startPut(const RmaCall& call, void** request) {
  return guardData("iput", [&]() -> ncclResult_t {
    const char* why = nullptr;
    HeldRmaContext* held = contextOf(call.rmaContext, call.context, request, &why);
    if (!held) return dataFault("iput", why);
    return start("iput", held->team().put(putOf(call)), request);
  });
}

ncclResult_t startPutSignal(const RmaCall& call, const RmaSignal& signal, void** request) {
  return guardData("iputSignal", [&]() -> ncclResult_t {
    const char* why = nullptr;
    HeldRmaContext* held = contextOf(call.rmaContext, call.context, request, &why);
    if (!held) return dataFault("iputSignal", why);
    if (signal.op != NCCL_NET_SIGNAL_OP_INC && signal.op != NCCL_NET_SIGNAL_OP_ADD)
      return dataFault("iputSignal", "a signal neither increments (1) nor adds (2)");
    rma::Put put = putOf(call);
    put.signals = true;
    put.signal = static_cast<rma::Window*>(signal.mhandle);
    put.signalOffset = signal.offset;
    put.addend = signal.op == NCCL_NET_SIGNAL_OP_INC ? 1 : signal.value;
    return start("iputSignal", held->team().put(put), request);
  });
}

ncclResult_t startGet(const RmaCall& call, void** request) {
  return guardData("iget", [&]() -> ncclResult_t {
    const char* why = nullptr;
    HeldRmaContext* held = contextOf(call.rmaContext, call.context, request, &why);
    if (!held) return dataFault("iget", why);
    rma::Get get;
    get.rank = call.rank;
    get.context = static_cast<uint32_t>(call.context);
    get.bytes = call.bytes;
    get.remote = static_cast<rma::Window*>(call.targetMhandle);
    get.remoteOffset = call.targetOffset;
    get.local = static_cast<rma::Window*>(call.sourceMhandle);
    get.localOffset = call.sourceOffset;
    return start("iget", held->team().get(get), request);
  });
}

// A get is done when its bytes are visible, so nothing is left to flush.
ncclResult_t rmaFlush(void* rmaContext, int context, void* /*mhandle*/, uint32_t /*rank*/, void** request) {
  return guardData("iflush", [&]() -> ncclResult_t {
    const char* why = nullptr;
    return contextOf(rmaContext, context, request, &why) ? ncclSuccess : dataFault("iflush", why);
  });
}

ncclResult_t rmaTest(void* collComm, void* request, int* done) {
  return guardData("test", [&]() -> ncclResult_t {
    if (!done) return dataFault("test", "no place for the answer");
    *done = 0;
    HeldTeam* held = teamOf(collComm);
    if (!held) return dataFault("test", "the comm is null or not of this plugin");
    bool over = false;
    const Status tested = held->team().test(static_cast<rma::Request*>(request), &over);
    *done = over ? 1 : 0;
    return tested ? ncclSuccess : rmaFailed("test", tested.error());
  });
}

// The team has logged its failure, once: NCCL's proxy of kernels ignores the result and calls again and
// again.
ncclResult_t rmaProgress(void* rmaContext) {
  return guardData("rmaProgress", [&]() -> ncclResult_t {
    HeldRmaContext* held = rmaContextOf(rmaContext);
    if (!held) return dataFault("rmaProgress", "the context is null or not of this plugin");
    const Status moved = held->team().progress();
    return moved ? ncclSuccess : resultOf(moved.error().code());
  });
}

ncclResult_t rmaLastError(void* rmaContext, bool* failed) {
  return guardData("queryLastError", [&]() -> ncclResult_t {
    if (!failed) return dataFault("queryLastError", "no place for the answer");
    *failed = false;
    const HeldRmaContext* held = rmaContextOf(rmaContext);
    if (!held) return dataFault("queryLastError", "the context is null or not of this plugin");
    *failed = held->team().failed();
    return ncclSuccess;
  });
}

}  // namespace weft::plugin
