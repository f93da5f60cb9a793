// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/record/service.h"
#include "tools/record/wrapped.h"

// The calls that the network's table and the one for collective offload have alike, for one version of one of
// them. Each is forwarded to the same version of the wrapped plugin's table, which init finds. A shape that
// occurs in some version only is an overload, picked by the type of the table's own field. Threads: as NCCL
// promises a plugin.
namespace weft::record {

template <class Table>
class SharedEntries {
 public:
  static ncclResult_t finalize(void* context) {
    return recordFinalize(kIsColl ? trace::Kind::collFinalize : trace::Kind::finalize, context,
                          [&](void* real) { return real_->finalize(real); });
  }

  static ncclResult_t listen(int device, void* handle, void** listenComm) {
    return recordListen(kListen, nullptr, device, handle, listenComm,
                        [&](void*, void** made) { return real_->listen(device, handle, made); });
  }
  static ncclResult_t listen(void* context, int device, void* handle, void** listenComm) {
    return recordListen(kListen, context, device, handle, listenComm,
                        [&](void* real, void** made) { return real_->listen(real, device, handle, made); });
  }
  static ncclResult_t closeListen(void* comm) {
    return recordClose(trace::Kind::closeListen, comm, [](void* real) { return real_->closeListen(real); });
  }

  template <class Size>
  static ncclResult_t regMr(void* comm, void* data, Size size, int type, void** mhandle) {
    return recordRegister(
        {trace::Kind::regMr, comm, data, static_cast<size_t>(size), type}, mhandle,
        [&](void* real, void** made) { return real_->regMr(real, data, size, type, made); });
  }
  static ncclResult_t regMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                                  void** mhandle) {
    if (real_->regMrDmaBuf == nullptr) return ncclInvalidUsage;
    return recordRegister({trace::Kind::regMrDmaBuf, comm, data, size, type, offset}, mhandle,
                          [&](void* real, void** made) {
                            return real_->regMrDmaBuf(real, data, size, type, offset, fd, made);
                          });
  }
  static ncclResult_t deregMr(void* comm, void* mhandle) {
    return recordDeregister(comm, mhandle,
                            [](void* real, void* memory) { return real_->deregMr(real, memory); });
  }

  static ncclResult_t test(void* request, int* done, int* sizes) {
    return recordTest(request, done, sizes,
                      [](void* real, int* isDone, int* told) { return real_->test(real, isDone, told); });
  }

 protected:
  static constexpr bool kIsColl = requires(Table table) { table.reduceSupport; };
  static constexpr trace::Kind kListen = kIsColl ? trace::Kind::collListen : trace::Kind::listen;

  static constexpr void fill(Table* table) {
    table->name = "record";
    table->listen = &listen;
    table->closeListen = &closeListen;
    table->regMr = &regMr;
    table->regMrDmaBuf = &regMrDmaBuf;
    table->deregMr = &deregMr;
    table->test = &test;
    if constexpr (requires { table->finalize; }) table->finalize = &finalize;
  }

  // The number of this type of table: in tables.cc.
  static int version();

  static inline const Table* real_ = nullptr;
};

}  // namespace weft::record
