// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <mutex>
#include <type_traits>

#include "tools/record/rma.h"
#include "tools/record/wrapped.h"

// The tables of one-sided operations, made as those of the network are (tables.h). Where the wrapped plugin
// has none of the version that NCCL took, init says so and NCCL looks further. Calls that only ask or drive
// (devices, properties, rmaProgress, queryLastError) are forwarded and not recorded.
namespace weft::record {

template <class Table>
class RmaEntries {
 public:
  static ncclResult_t init(void** context, uint64_t commId, ncclDebugLogger_t logger) {
    if (context == nullptr) return ncclInvalidArgument;
    if (!adopt(logger)) return ncclSystemError;
    return recordRmaInit(version(), context, commId,
                         [&](void** made) { return real_->init(made, commId, logger); });
  }
  // NCCL may finalize what was never initialised.
  static ncclResult_t finalize(void* context) {
    if (real_ == nullptr) return ncclSuccess;
    return recordFinalize(trace::Kind::rmaFinalize, context,
                          [](void* real) { return real_->finalize(real); });
  }
  static ncclResult_t devices(int* count) { return real_->devices(count); }
  template <class Properties>
  static ncclResult_t getProperties(int device, Properties* out) {
    return real_->getProperties(device, out);
  }
  template <class Properties>
  static ncclResult_t getRmaProperties(void* comm, Properties* out) {
    return real_->getRmaProperties(realOf<Comm>(comm), out);
  }

  static ncclResult_t listen(void* context, int device, void* handle, void** listenComm) {
    return recordListen(trace::Kind::rmaListen, context, device, handle, listenComm,
                        [&](void* real, void** made) { return real_->listen(real, device, handle, made); });
  }
  static ncclResult_t closeListen(void* comm) {
    return recordClose(trace::Kind::closeListen, comm, [](void* real) { return real_->closeListen(real); });
  }
  // The context that NCCL passes is another table's, so the plugin is given the listener's.
  static ncclResult_t connect(void*, void* handles[], int ranks, int rank, void* listenComm,
                              void** collComm) {
    if (handles == nullptr || ranks < 1 || listenComm == nullptr) return ncclInvalidArgument;
    void* const context = static_cast<const Comm*>(listenComm)->realContext;
    return recordGroupConnect(
        trace::Kind::rmaConnect, {handles, static_cast<size_t>(ranks)}, rank, listenComm, collComm,
        [&](void* real, void** made) { return real_->connect(context, handles, ranks, rank, real, made); });
  }
  static ncclResult_t closeColl(void* comm) {
    return recordClose(trace::Kind::closeColl, comm, [](void* real) { return real_->closeColl(real); });
  }

  template <class Config>
  static ncclResult_t createContext(void* comm, Config* config, void** rmaContext) {
    return recordCreateContext(
        comm, config != nullptr ? config->nContexts : 1, rmaContext,
        [&](void* real, void** made) { return real_->createContext(real, config, made); });
  }
  template <class Config, class DeviceHandle>
  static ncclResult_t createContext(void* comm, Config* config, void** rmaContext, DeviceHandle** handle) {
    return recordCreateContext(
        comm, config != nullptr ? config->nContexts : 1, rmaContext,
        [&](void* real, void** made) { return real_->createContext(real, config, made, handle); });
  }
  static ncclResult_t destroyContext(void* rmaContext) {
    return recordDestroyContext(rmaContext, [](void* real) { return real_->destroyContext(real); });
  }

  template <class... ForKernels>
  static ncclResult_t regMrSym(void* comm, void* data, size_t size, int type, uint64_t flags, void** mhandle,
                               ForKernels... forKernels) {
    return recordWindow({trace::Kind::regMr, comm, data, size, type}, flags, mhandle,
                        [&](void* real, void** made) {
                          return real_->regMrSym(real, data, size, type, flags, made, forKernels...);
                        });
  }
  template <class... ForKernels>
  static ncclResult_t regMrSymDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                                     uint64_t flags, void** mhandle, ForKernels... forKernels) {
    if (real_->regMrSymDmaBuf == nullptr) return ncclInvalidUsage;
    return recordWindow({trace::Kind::regMrDmaBuf, comm, data, size, type, offset}, flags, mhandle,
                        [&](void* real, void** made) {
                          return real_->regMrSymDmaBuf(real, data, size, type, offset, fd, flags, made,
                                                       forKernels...);
                        });
  }
  static ncclResult_t deregMrSym(void* comm, void* mhandle) {
    return recordDeregister(comm, mhandle,
                            [](void* real, void* memory) { return real_->deregMrSym(real, memory); });
  }

  // `hints`: optFlags, where the version has them.
  template <class... Hints>
  static ncclResult_t put(void* context, int number, uint64_t sourceOffset, void* source, size_t size,
                          uint64_t targetOffset, void* target, uint32_t rank, Hints... hints,
                          void** request) {
    const RmaMove move{trace::Kind::iput,      context, number, {sourceOffset, source},
                       {targetOffset, target}, size,    rank,   (0u | ... | hints)};
    return recordMove(move, request, [&](void* real) {
      return real_->iput(real, number, sourceOffset, move.local.real(), size, targetOffset,
                         move.remote.real(), rank, hints..., request);
    });
  }
  template <class... Hints>
  static ncclResult_t get(void* context, int number, uint64_t remoteOffset, void* remote, size_t size,
                          uint64_t localOffset, void* local, uint32_t rank, Hints... hints, void** request) {
    if (real_->iget == nullptr) return ncclInvalidUsage;
    const RmaMove move{trace::Kind::iget,      context, number, {localOffset, local},
                       {remoteOffset, remote}, size,    rank,   (0u | ... | hints)};
    return recordMove(move, request, [&](void* real) {
      return real_->iget(real, number, remoteOffset, move.remote.real(), size, localOffset, move.local.real(),
                         rank, hints..., request);
    });
  }
  // `more`: whether it is a strong one, and optFlags, where the version has them.
  template <class... More>
  static ncclResult_t putSignal(void* context, int number, uint64_t sourceOffset, void* source, size_t size,
                                uint64_t targetOffset, void* target, uint32_t rank, uint64_t signalOffset,
                                void* signal, uint64_t value, uint32_t op, More... more, void** request) {
    RmaMove move{trace::Kind::iputSignal, context, number, {sourceOffset, source},
                 {targetOffset, target},  size,    rank};
    move.signal = {signalOffset, signal};
    move.value = value;
    move.op = op;
    move.strong = true;
    note(&move, more...);
    return recordMove(move, request, [&](void* real) {
      return real_->iputSignal(real, number, sourceOffset, move.local.real(), size, targetOffset,
                               move.remote.real(), rank, signalOffset, move.signal.real(), value, op, more...,
                               request);
    });
  }

  static ncclResult_t iflush(void* context, int number, void* mhandle, uint32_t rank, void** request) {
    if (real_->iflush == nullptr) return ncclInvalidUsage;
    const RmaMove move{trace::Kind::iflushRma, context, number, {}, {0, mhandle}, 0, rank};
    return recordMove(move, request, [&](void* real) {
      return real_->iflush(real, number, move.remote.real(), rank, request);
    });
  }
  static ncclResult_t test(void* comm, void* request, int* done) {
    return recordTest(request, done, nullptr, [&](void* real, int* isDone, int*) {
      return real_->test(realOf<Comm>(comm), real, isDone);
    });
  }
  static ncclResult_t progress(void* context) {
    const auto* own = static_cast<const RmaContext*>(context);
    if (own == nullptr) return ncclInvalidArgument;
    if constexpr (requires { real_->ginProgress; })
      return real_->ginProgress != nullptr ? real_->ginProgress(own->real) : ncclSuccess;
    else
      return real_->rmaProgress != nullptr ? real_->rmaProgress(own->real) : ncclSuccess;
  }
  static ncclResult_t queryLastError(void* context, bool* failed) {
    const auto* own = static_cast<const RmaContext*>(context);
    if (own == nullptr || failed == nullptr) return ncclInvalidArgument;
    *failed = false;
    return real_->queryLastError != nullptr ? real_->queryLastError(own->real, failed) : ncclSuccess;
  }

  static constexpr Table make() {
    Table table{};
    table.name = "record";
    table.init = &init;
    table.devices = &devices;
    if constexpr (requires { table.getRmaProperties; }) table.getRmaProperties = &getRmaProperties;
    table.getProperties = &getProperties;
    table.listen = &listen;
    table.connect = &connect;
    table.createContext = &createContext;
    table.regMrSym = &regMrSym;
    table.regMrSymDmaBuf = &regMrSymDmaBuf;
    table.deregMrSym = &deregMrSym;
    table.destroyContext = &destroyContext;
    table.closeColl = &closeColl;
    table.closeListen = &closeListen;
    setMoves(&table);
    table.iflush = &iflush;
    table.test = &test;
    if constexpr (requires { table.ginProgress; })
      table.ginProgress = &progress;
    else
      table.rmaProgress = &progress;
    table.queryLastError = &queryLastError;
    table.finalize = &finalize;
    return table;
  }

 private:
  static void note(RmaMove*) {}
  static void note(RmaMove* move, bool strong) { move->strong = strong; }
  static void note(RmaMove* move, bool strong, uint32_t hints) {
    move->strong = strong;
    move->hints = hints;
  }

  static constexpr void setMoves(Table* table) {
    if constexpr (std::is_same_v<Table, ncclRma_v15_t> || std::is_same_v<Table, ncclRma_v16_t>) {
      table->iput = &put<uint32_t>;
      table->iget = &get<uint32_t>;
      table->iputSignal = &putSignal<bool, uint32_t>;
    } else {
      table->iput = &put<>;
      table->iget = &get<>;
      if constexpr (std::is_same_v<Table, ncclRma_v14_t>)
        table->iputSignal = &putSignal<bool>;
      else
        table->iputSignal = &putSignal<>;
    }
  }

  static bool adopt(ncclDebugLogger_t logger) {
    Recorder::instance().setLogger(logger);
    static std::once_flag once;
    std::call_once(once, [] {
      const Wrapped& wrapped = Wrapped::instance();
      real_ = static_cast<const Table*>(
          wrapped.usable(wrapped.rmaTable(version()), version(), "of one-sided operations"));
    });
    return real_ != nullptr;
  }

  // The number of this type of table: in tables.cc.
  static int version();

  static inline const Table* real_ = nullptr;
};

}  // namespace weft::record
