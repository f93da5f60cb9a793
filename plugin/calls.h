// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/types.h"
#include "plugin/plugin.h"

// NCCL's calls without their version: abi.h gives each table's signatures and ends here. Every one is behind
// a guard, takes whatever NCCL may pass (null where it means nothing) and writes its outputs in every case.
// Which thread calls what: include/nccl/net_v6.h.
namespace weft::plugin {

// init.cc
ncclResult_t startShared(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
ncclResult_t openContext(void** context, uint64_t communicator, int trafficClass, ncclDebugLogger_t logger,
                         ncclProfilerCallback_t profiler);
ncclResult_t closeContext(void* context);

// connect.cc
ncclResult_t listenOn(const ContextChoice& choice, int device, void* handle, void** listenComm);
ncclResult_t connectTo(const ContextChoice& choice, int device, void* handle, void** sendComm);
ncclResult_t acceptFrom(void* listenComm, void** recvComm);
ncclResult_t closeSend(void* sendComm);
ncclResult_t closeRecv(void* recvComm);
ncclResult_t closeListen(void* listenComm);

// memory.cc
ncclResult_t registerRange(void* comm, void* data, size_t bytes, int type, void** mhandle);
ncclResult_t regMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                         void** mhandle);
ncclResult_t deregMr(void* comm, void* mhandle);

// data.cc, data.h
// The arguments of a group; sizes are read through `sizeOf` because the tables differ in their type.
struct ReceiveCall {
  int count;
  void* const* data;
  const void* sizes;
  size_t (*sizeOf)(const void* sizes, int index);
  const int* tags;
  void* const* mhandles;
  void* const* phandles;  // may be null
};
ncclResult_t postReceive(void* recvComm, const ReceiveCall& call, void** request);
ncclResult_t postFlush(void* recvComm, const ReceiveCall& call, void** request);
ncclResult_t test(void* request, int* done, int* sizes);

}  // namespace weft::plugin
