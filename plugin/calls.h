// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/types.h"
#include "plugin/plugin.h"

// NCCL's calls without their version: abi.h has each table's signatures and forwards to these functions.
// Every function is behind a guard, takes whatever NCCL may pass (null where it means nothing), and writes
// its outputs in every case but in a forked child, where nothing is touched. The thread of each call:
// include/nccl/net_v6.h.
namespace weft::plugin {

// init.cc: init of v6 to v10; init and finalize from v11 on.
ncclResult_t startShared(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
ncclResult_t openContext(void** context, uint64_t communicator, int trafficClass, ncclDebugLogger_t logger,
                         ncclProfilerCallback_t profiler);
ncclResult_t closeContext(void* context);

// connect.cc: null in `sendComm` or `recvComm` with success means "call again". Closing null is allowed.
ncclResult_t listenOn(const ContextChoice& choice, int device, void* handle, void** listenComm);
ncclResult_t connectTo(const ContextChoice& choice, int device, void* handle, void** sendComm);
ncclResult_t acceptFrom(void* listenComm, void** recvComm);
ncclResult_t closeSend(void* sendComm);
ncclResult_t closeRecv(void* recvComm);
ncclResult_t closeListen(void* listenComm);

// memory.cc: `type` is NCCL_PTR_HOST or NCCL_PTR_CUDA. A failure is no fault: NCCL stages then.
ncclResult_t registerRange(void* comm, void* data, size_t bytes, int type, void** mhandle);
ncclResult_t regMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                         void** mhandle);
ncclResult_t deregMr(void* comm, void* mhandle);

// data.cc, data.h: null in `request` with success means "call again", but for a flush: "nothing to wait for".
// The arguments of a group of receives. Sizes are read through `sizeOf`, since the tables differ in their
// type.
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
