// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <mutex>

#include "nccl/net.h"
#include "tools/record/shared_entries.h"

// Each version has a network table, made of one set of functions: a shape that occurs in some version is an
// overload, picked by the type of the table's own field. Each forwards to the same version of the wrapped
// plugin, which init finds. Threads: as NCCL promises a plugin.
namespace weft::record {

template <class Table>
class Entries : public SharedEntries<Table> {
  using SharedEntries<Table>::real_;
  using SharedEntries<Table>::version;

 public:
  template <class... Rest>
  static ncclResult_t init(ncclDebugLogger_t logger, Rest... rest) {
    if (!adopt(logger)) return ncclSystemError;
    return recordInit(trace::Kind::init, nullptr, 0, NCCL_NET_TRAFFIC_CLASS_UNDEF,
                      [&](void**) { return real_->init(logger, rest...); });
  }
  template <class Config>
  static ncclResult_t init(void** context, uint64_t commId, Config* config, ncclDebugLogger_t logger,
                           ncclProfilerCallback_t profiler) {
    if (context == nullptr) return ncclInvalidArgument;
    if (!adopt(logger)) return ncclSystemError;
    const int trafficClass = config != nullptr ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF;
    return recordInit(trace::Kind::init, context, commId, trafficClass,
                      [&](void** made) { return real_->init(made, commId, config, logger, profiler); });
  }
  static ncclResult_t devices(int* count) {
    return recordDevices(count, [&] { return real_->devices(count); });
  }
  template <class Properties>
  static ncclResult_t getProperties(int device, Properties* out) {
    Recorder& recorder = Recorder::instance();
    Timed call{recorder.now(), 0, ncclSuccess};
    call.result = real_->getProperties(device, out);
    call.took = recorder.now() - call.began;
    if (call.result != ncclSuccess) return call.result;
    writeProperties(call, valuesOf(device, *out), out->name);
    if constexpr (requires { out->netDeviceType; })
      if (out->netDeviceType != NCCL_NET_DEVICE_HOST) return refuseDevice(device);
    return call.result;
  }
  template <class Members>
  static ncclResult_t makeVDevice(int* device, Members* members) {
    const bool sane = members != nullptr && members->ndevs >= 0 &&
                      members->ndevs <= static_cast<int>(std::size(members->devs));
    return recordMembers(device, sane ? members->ndevs : 0, sane ? members->devs : nullptr,
                         [&] { return real_->makeVDevice(device, members); });
  }
  template <class Attributes>
  static ncclResult_t setNetAttr(void* context, Attributes* attributes) {
    if (attributes == nullptr) return ncclInvalidArgument;
    const auto numbers = numbersOf(*attributes);
    const bool written = changes(context, numbers);
    Timed call{written ? Recorder::instance().now() : 0, 0, ncclSuccess};
    if (real_->setNetAttr != nullptr) call.result = real_->setNetAttr(realOf<Context>(context), attributes);
    if (written) writeAttributes(call, context, numbers);
    return call.result;
  }

  template <class... Rest>
  static ncclResult_t connect(int device, void* handle, void** sendComm, Rest... rest) {
    return recordConnect(nullptr, device, handle, sendComm,
                         [&](void*, void** made) { return real_->connect(device, handle, made, rest...); });
  }
  template <class Config, class DeviceHandle>
  static ncclResult_t connect(int device, Config* config, void* handle, void** sendComm,
                              DeviceHandle** code) {
    return recordConnect(nullptr, device, handle, sendComm, [&](void*, void** made) {
      return real_->connect(device, config, handle, made, code);
    });
  }
  template <class DeviceHandle>
  static ncclResult_t connect(void* context, int device, void* handle, void** sendComm, DeviceHandle** code) {
    return recordConnect(context, device, handle, sendComm, [&](void* real, void** made) {
      return real_->connect(real, device, handle, made, code);
    });
  }
  template <class... Rest>
  static ncclResult_t accept(void* listenComm, void** recvComm, Rest... rest) {
    return recordAccept(listenComm, recvComm,
                        [&](void* real, void** made) { return real_->accept(real, made, rest...); });
  }
  static ncclResult_t closeSend(void* comm) {
    return recordClose(trace::Kind::closeSend, comm, [](void* real) { return real_->closeSend(real); });
  }
  static ncclResult_t closeRecv(void* comm) {
    return recordClose(trace::Kind::closeRecv, comm, [](void* real) { return real_->closeRecv(real); });
  }
  template <class Size>
  static ncclResult_t isend(void* comm, void* data, Size size, int tag, void* mhandle, void** request) {
    return recordSend(
        comm, data, static_cast<size_t>(size), tag, mhandle, request,
        [&](void* real, void* memory) { return real_->isend(real, data, size, tag, memory, request); });
  }
  template <class Size>
  static ncclResult_t isend(void* comm, void* data, Size size, int tag, void* mhandle, void* phandle,
                            void** request) {
    return recordSend(comm, data, static_cast<size_t>(size), tag, mhandle, request,
                      [&](void* real, void* memory) {
                        return real_->isend(real, data, size, tag, memory, phandle, request);
                      });
  }
  template <class Size>
  static ncclResult_t irecv(void* comm, int n, void** data, Size* sizes, int* tags, void** mhandles,
                            void** request) {
    return recordGroup(trace::Kind::irecv, comm, Group<Size>{n, data, sizes, tags, mhandles}, request,
                       [&](void* real, void** memories) {
                         return real_->irecv(real, n, data, sizes, tags, memories, request);
                       });
  }
  template <class Size>
  static ncclResult_t irecv(void* comm, int n, void** data, Size* sizes, int* tags, void** mhandles,
                            void** phandles, void** request) {
    return recordGroup(trace::Kind::irecv, comm, Group<Size>{n, data, sizes, tags, mhandles}, request,
                       [&](void* real, void** memories) {
                         return real_->irecv(real, n, data, sizes, tags, memories, phandles, request);
                       });
  }
  template <class Size>
  static ncclResult_t iflush(void* comm, int n, void** data, Size* sizes, void** mhandles, void** request) {
    return recordGroup(
        trace::Kind::iflush, comm, Group<Size>{n, data, sizes, nullptr, mhandles}, request,
        [&](void* real, void** memories) { return real_->iflush(real, n, data, sizes, memories, request); });
  }
  // The table that NCCL finds; init takes out what the wrapped plugin lacks.
  static constexpr Table make() {
    Table table{};
    SharedEntries<Table>::fill(&table);
    table.init = &init;
    table.devices = &devices;
    table.getProperties = &getProperties;
    table.connect = &connect;
    table.accept = &accept;
    table.isend = &isend;
    table.irecv = &irecv;
    table.iflush = &iflush;
    table.closeSend = &closeSend;
    table.closeRecv = &closeRecv;
    if constexpr (requires { table.makeVDevice; }) table.makeVDevice = &makeVDevice;
    if constexpr (requires { table.setNetAttr; }) table.setNetAttr = &setNetAttr;
    return table;
  }

 private:
  // The table of ours that NCCL has: in tables.cc.
  static Table* own();

  // Finds the wrapped plugin's table at the first init. NCCL reads the optional entries after that, so those
  // which it lacks are taken out of ours.
  static bool adopt(ncclDebugLogger_t logger) {
    Recorder::instance().setLogger(logger);
    static std::once_flag once;
    std::call_once(once, [] { find(); });
    if (real_ == nullptr) Recorder::instance().warn(error_);
    return real_ != nullptr;
  }

  static void find() {
    const Wrapped& wrapped = Wrapped::instance();
    error_ = wrapped.error();
    if (!error_.empty()) return;
    real_ = static_cast<const Table*>(wrapped.table(version()));
    if (real_ == nullptr) {
      error_ = wrapped.path() + " has no table of version " + std::to_string(version()) +
               ", which this NCCL takes first, but " + wrapped.versions() +
               "; record it with an NCCL whose newest table it has";
      return;
    }
    if constexpr (requires { real_->makeVDevice; })
      if (real_->makeVDevice == nullptr) own()->makeVDevice = nullptr;
    writeTable(version(), real_->name != nullptr ? real_->name : "");
    Recorder::instance().inform(wrapped.path() + " is recorded in " + Recorder::instance().path());
  }

  template <class Properties>
  static std::array<uint64_t, trace::kMostFields> valuesOf(int device, const Properties& p) {
    std::array<uint64_t, trace::kMostFields> v{};
    v[0] = static_cast<uint64_t>(device);
    v[1] = static_cast<uint64_t>(p.ptrSupport);
    if constexpr (requires { p.regIsGlobal; }) v[2] = static_cast<uint64_t>(p.regIsGlobal);
    if constexpr (requires { p.forceFlush; }) v[3] = static_cast<uint64_t>(p.forceFlush);
    v[4] = static_cast<uint64_t>(p.speed);
    v[5] = static_cast<uint64_t>(p.port);
    v[6] = static_cast<uint64_t>(p.maxComms);
    v[7] = static_cast<uint64_t>(p.maxRecvs);
    if constexpr (requires { p.maxP2pBytes; }) {
      v[8] = p.maxP2pBytes;
      v[9] = p.maxCollBytes;
    }
    return v;
  }

  template <class Attributes>
  static std::array<uint64_t, 11> numbersOf(const Attributes& a) {
    const auto wide = [](int32_t value) { return static_cast<uint64_t>(int64_t{value}); };
    const auto& s = a.sendCommAttr;
    const auto& r = a.recvCommAttr;
    return {wide(s.maxConcurrentPeers),
            wide(s.minConcurrentPeers),
            wide(s.maxFlowsPerPeer),
            wide(s.minFlowsPerPeer),
            wide(r.maxConcurrentPeers),
            wide(r.minConcurrentPeers),
            wide(r.maxFlowsPerPeer),
            wide(r.minFlowsPerPeer),
            a.op,
            a.algo,
            a.proto};
  }

  static inline std::string error_;
};

}  // namespace weft::record
