// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/coll.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <optional>

#include "plugin/guard.h"
#include "plugin/plugin.h"
#include "plugin/ranks.h"
#include "src/coll/kernels.h"
#include "src/coll/offload.h"

// The calls of collective offload: arguments checked, NCCL's numbers translated, and groups kept in the
// registry.
namespace weft::plugin {

namespace {

// A context of the offload tables belongs to a communicator, whose hash is mixed with this mark. So it has
// the engines, and with them the lanes, of the network's context of the same rank.
constexpr uint64_t kOffloadMark = 0x7765'6674'636f'6c6c;

// The group behind NCCL's pointer; null: it is no group of this plugin.
HeldGroup* groupOf(void* pointer) {
  return static_cast<HeldGroup*>(heldOf(pointer, Kind::group));
}

// NCCL's type as the library names it; nothing: no backend reduces it.
std::optional<coll::ElementType> elementType(ncclDataType_t type) {
  using coll::ElementType;
  switch (type) {
    case ncclInt8:
      return ElementType::i8;
    case ncclUint8:
      return ElementType::u8;
    case ncclInt32:
      return ElementType::i32;
    case ncclUint32:
      return ElementType::u32;
    case ncclInt64:
      return ElementType::i64;
    case ncclUint64:
      return ElementType::u64;
    case ncclFloat16:
      return ElementType::f16;
    case ncclFloat32:
      return ElementType::f32;
    case ncclFloat64:
      return ElementType::f64;
    case ncclBfloat16:
      return ElementType::bf16;
    default:
      return std::nullopt;
  }
}

// NCCL's reduction; nothing: averages and user-defined ones are not offered, and NCCL reduces without
// offload.
std::optional<coll::ReduceOp> reduceOp(ncclRedOp_t op) {
  switch (op) {
    case ncclSum:
      return coll::ReduceOp::sum;
    case ncclProd:
      return coll::ReduceOp::prod;
    case ncclMax:
      return coll::ReduceOp::max;
    case ncclMin:
      return coll::ReduceOp::min;
    default:
      return std::nullopt;
  }
}

// NCCL's table has an int where a vector may have more bytes: one above 2 GiB arrives as a negative number,
// and goes back as the largest one.
constexpr size_t sizeAsMeant(int bytes) {
  return static_cast<uint32_t>(bytes);
}
constexpr int sizeAsTold(uint64_t bytes) {
  return static_cast<int>(std::min<uint64_t>(bytes, INT_MAX));
}
static_assert(sizeAsTold(4096) == 4096 && sizeAsTold(uint64_t{3} << 30) == INT_MAX);
static_assert(sizeAsMeant(4096) == 4096 && sizeAsMeant(INT_MIN) == size_t{2} << 30);

// A group that is broken answers with its sticky error, which was logged when it broke.
ncclResult_t startOperation(HeldGroup& held, const coll::Operation& operation, void** request) {
  const coll::Started started = held.group().start(operation);
  *request = started.request;
  return started.ok ? ncclSuccess : resultOf(held.group().error().code());
}

// The fault in a gather's or scatter's arguments, or null. The rank's own pointer stands for the part of the
// window that lies in the rank's own part, and may be null where that part is empty. A size that is negative
// in NCCL's table arrives as a huge one.
const char* gatherFault(const GatherCall& call) {
  if (call.parts != 1) return "the window is in several parts, and only one is supported";
  if (std::max({call.partBytes, call.bytesPerRank, call.windowOffset, call.windowBytes}) >
      size_t{PTRDIFF_MAX})
    return "a size or the window's begin is negative";
  if (call.partBytes < call.windowBytes) return "the part is smaller than the window";
  if (call.windowBytes > 0 && !call.part) return "the part's address is null";
  if (call.windowBytes > 0 && !call.partMhandle) return "the part's registration is null";
  if (call.own && !call.ownMhandle) return "the registration of the rank's own part is null";
  return nullptr;
}

coll::Operation gatherOf(const GatherCall& call) {
  coll::Operation operation;
  operation.bytesPerRank = call.bytesPerRank;
  operation.windowOffset = call.windowOffset;
  operation.windowBytes = call.windowBytes;
  return operation;
}

}  // namespace

// The answer is the same on every rank whatever its settings: NCCL 2.30 and later end a job whose ranks
// differ. Offload or none is decided when a group is formed.
ncclResult_t countCollDevices(int* count) {
  return guard("devices", [&]() -> Status {
    if (!count) return refused("counting devices", "no place for the answer");
    *count = 0;
    TRY(const Config* config, Plugin::get().config());
    if (!config) return {};
    TRY(*count, Plugin::get().deviceCount());
    return {};
  });
}

ncclResult_t openCollContext(void** context, uint64_t communicator, ncclDebugLogger_t logger) {
  return guard("init", [&]() -> Status {
    if (!context) return refused("opening a context", "no place for the context");
    *context = nullptr;
    TRY(*context, Plugin::get().openContext(communicator ^ kOffloadMark, core::ContextOptions().trafficClass,
                                            logger, nullptr));
    return {};
  });
}

// A failure is no fault to NCCL, which goes on without offload as long as all ranks fail; hence the level.
ncclResult_t connectGroup(void* handles[], int ranks, int rank, void* listenComm, void** collComm) {
  return guard(
      "connect",
      [&]() -> Status {
        auto* listener = static_cast<HeldListener*>(heldOf(listenComm, Kind::listener));
        if (collComm) *collComm = nullptr;
        TRY(coll::MeshOptions options,
            ranksOf("connecting a collective group", handles, ranks, rank, listener, collComm));
        TRY(auto group, coll::openGroup(std::move(options)));
        *collComm = Plugin::get().keep(
            std::make_unique<HeldGroup>(listener->owner(), listener->context(), std::move(group)));
        return {};
      },
      LogLevel::warn);
}

// The registry gives the group up first, so that no lock is held while the group says goodbye and waits.
ncclResult_t closeColl(void* collComm) {
  return guard("closeColl", [&]() -> Status {
    if (!collComm) return {};
    TRY(const std::unique_ptr<Held> dying, Plugin::get().release(collComm, Kind::group));
    dying->close();
    return {};
  });
}

ncclResult_t reduceSupport(ncclDataType_t type, ncclRedOp_t op, int* supported) {
  return guard("reduceSupport", [&]() -> Status {
    if (!supported) return refused("asking for a reduction", "no place for the answer");
    *supported = 0;
    const auto element = elementType(type);
    const auto how = reduceOp(op);
    TRY(const Config* config, Plugin::get().config());
    if (config && element && how) *supported = coll::offloadReduces(*config, *element, *how) ? 1 : 0;
    return {};
  });
}

namespace {

ncclResult_t registerRange(const char* call, void* collComm, const MemoryDesc& desc, int type,
                           void** mhandle) {
  return guard(
      call,
      [&]() -> Status {
        constexpr const char* kOperation = "registering memory";
        if (!mhandle) return refused(kOperation, "no place for the registration");
        *mhandle = nullptr;
        HeldGroup* held = groupOf(collComm);
        if (!held) return refused(kOperation, "the group is null or not of this plugin");
        TRY(checkMemory(kOperation, desc, type));
        TRY(*mhandle, held->group().registerMemory(desc));
        return {};
      },
      LogLevel::info);
}

}  // namespace

ncclResult_t registerWithGroup(void* collComm, void* data, size_t bytes, int type, void** mhandle) {
  return registerRange("regMr", collComm, rangeOf(data, bytes, type), type, mhandle);
}

ncclResult_t collRegMrDmaBuf(void* collComm, void* data, size_t size, int type, uint64_t offset, int fd,
                             void** mhandle) {
  return registerRange("regMrDmaBuf", collComm, dmaBufOf(data, size, offset, fd), type, mhandle);
}

ncclResult_t collDeregMr(void* collComm, void* mhandle) {
  return guard("deregMr", [&]() -> Status {
    if (!mhandle) return {};
    HeldGroup* held = groupOf(collComm);
    if (!held) return refused("deregistering memory", "the group is null or not of this plugin");
    return held->group().deregisterMemory(static_cast<coll::GroupMemory*>(mhandle));
  });
}

ncclResult_t startAllReduce(void* collComm, void* send, void* receive, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, void* sendMhandle, void* receiveMhandle, void** request) {
  return guardData("iallreduce", [&]() -> ncclResult_t {
    if (!request) return dataFault("iallreduce", "no place for the request");
    *request = nullptr;
    HeldGroup* held = groupOf(collComm);
    if (!held) return dataFault("iallreduce", "the group is null or not of this plugin");
    const auto element = elementType(type);
    const auto how = reduceOp(op);
    if (!element || !how) return dataFault("iallreduce", "the type or operation is none of those supported");
    if (count > (size_t{1} << 40)) return dataFault("iallreduce", "the count is negative or over 2^40");
    if (!send || !receive || !sendMhandle || !receiveMhandle)
      return dataFault("iallreduce", "a buffer or its registration is null");
    coll::Operation operation;
    operation.kind = coll::OperationKind::allReduce;
    operation.type = *element;
    operation.op = *how;
    operation.bytes = count * coll::elementBytes(*element);
    operation.send = send;
    operation.receive = receive;
    operation.sendMemory = static_cast<coll::GroupMemory*>(sendMhandle);
    operation.receiveMemory = static_cast<coll::GroupMemory*>(receiveMhandle);
    return startOperation(*held, operation, request);
  });
}

ncclResult_t startAllGather(void* collComm, const GatherCall& call, void** request) {
  return guardData("iallgather", [&]() -> ncclResult_t {
    if (!request) return dataFault("iallgather", "no place for the request");
    *request = nullptr;
    HeldGroup* held = groupOf(collComm);
    if (!held) return dataFault("iallgather", "the group is null or not of this plugin");
    if (const char* fault = gatherFault(call)) return dataFault("iallgather", fault);
    coll::Operation operation = gatherOf(call);
    operation.kind = coll::OperationKind::allGather;
    operation.send = call.own;
    operation.sendMemory = static_cast<coll::GroupMemory*>(call.ownMhandle);
    operation.receive = call.part;
    operation.receiveMemory = static_cast<coll::GroupMemory*>(call.partMhandle);
    return startOperation(*held, operation, request);
  });
}

ncclResult_t startReduceScatter(void* collComm, const GatherCall& call, ncclDataType_t type, ncclRedOp_t op,
                                void** request) {
  return guardData("ireducescatter", [&]() -> ncclResult_t {
    if (!request) return dataFault("ireducescatter", "no place for the request");
    *request = nullptr;
    HeldGroup* held = groupOf(collComm);
    if (!held) return dataFault("ireducescatter", "the group is null or not of this plugin");
    const auto element = elementType(type);
    const auto how = reduceOp(op);
    if (!element || !how)
      return dataFault("ireducescatter", "the type or operation is none of those supported");
    if (const char* fault = gatherFault(call)) return dataFault("ireducescatter", fault);
    coll::Operation operation = gatherOf(call);
    operation.kind = coll::OperationKind::reduceScatter;
    operation.type = *element;
    operation.op = *how;
    operation.send = call.part;
    operation.sendMemory = static_cast<coll::GroupMemory*>(call.partMhandle);
    operation.receive = call.own;
    operation.receiveMemory = static_cast<coll::GroupMemory*>(call.ownMhandle);
    return startOperation(*held, operation, request);
  });
}

ncclResult_t collFlush(void* collComm, void* data, int bytes, void* mhandle, void** request) {
  return guardData("iflush", [&]() -> ncclResult_t {
    if (!request) return dataFault("iflush", "no place for the request");
    *request = nullptr;
    HeldGroup* held = groupOf(collComm);
    if (!held) return dataFault("iflush", "the group is null or not of this plugin");
    if (!data || !mhandle) return dataFault("iflush", "the buffer or its registration is null");
    const coll::Started started =
        held->group().flush(data, sizeAsMeant(bytes), static_cast<coll::GroupMemory*>(mhandle));
    *request = started.request;
    return started.ok ? ncclSuccess : resultOf(held->group().error().code());
  });
}

// A request names its group itself, since NCCL passes no group.
ncclResult_t collTest(void* request, int* done, int* size) {
  return guardData("test", [&]() -> ncclResult_t {
    if (!done) return dataFault("test", "no place for the answer");
    *done = 0;
    auto* asked = static_cast<coll::GroupRequest*>(request);
    if (!asked) return dataFault("test", "the request is null");
    const coll::Finished finished = asked->group->test(asked);
    *done = finished.done ? 1 : 0;
    if (finished.done && size) *size = sizeAsTold(finished.bytes);
    return finished.ok ? ncclSuccess : resultOf(asked->group->error().code());
  });
}

}  // namespace weft::plugin
