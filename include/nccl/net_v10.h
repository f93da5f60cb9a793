// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL network table, version 10: loaded by NCCL 2.26.2 and every release since (last looked at:
// 2.30.7). Against version 9, connect learns the communicator's configuration, and init, isend and
// irecv carry what is needed to report network events to a profiler. Devices are described as before.
// Threads and life times are those of version 6.
#pragma once

#include "nccl/net_v9.h"

typedef ncclNetDeviceHandle_v9_t ncclNetDeviceHandle_v10_t;
typedef ncclNetVDeviceProps_v9_t ncclNetVDeviceProps_v10_t;
typedef ncclNetProperties_v9_t ncclNetProperties_v10_t;

#define NCCL_NET_TRAFFIC_CLASS_UNDEF (-1)

// What the user configured for one communicator.
typedef struct {
  int trafficClass;  // NCCL_NET_TRAFFIC_CLASS_UNDEF when the user chose none
} ncclNetCommConfig_v10_t;

typedef struct {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v10_t* properties);
  ncclResult_t (*listen)(int device, void* handle, void** listenComm);
  ncclResult_t (*connect)(int device, ncclNetCommConfig_v10_t* config, void* handle, void** sendComm,
                          ncclNetDeviceHandle_v10_t** sendDevComm);
  ncclResult_t (*accept)(void* listenComm, void** recvComm, ncclNetDeviceHandle_v10_t** recvDevComm);
  ncclResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** mhandle);
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                              void** mhandle);
  ncclResult_t (*deregMr)(void* comm, void* mhandle);
  // phandle is the parent of this send's profiler events, valid until the send is done. It may be
  // null, and so may the array of irecv.
  ncclResult_t (*isend)(void* sendComm, void* data, size_t size, int tag, void* mhandle, void* phandle,
                        void** request);
  ncclResult_t (*irecv)(void* recvComm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
                        void** phandles, void** request);
  ncclResult_t (*iflush)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
  ncclResult_t (*test)(void* request, int* done, int* sizes);
  ncclResult_t (*closeSend)(void* sendComm);
  ncclResult_t (*closeRecv)(void* recvComm);
  ncclResult_t (*closeListen)(void* listenComm);
  ncclResult_t (*getDeviceMr)(void* comm, void* mhandle, void** deviceMhandle);
  ncclResult_t (*irecvConsumed)(void* recvComm, int n, void* request);
  ncclResult_t (*makeVDevice)(int* device, ncclNetVDeviceProps_v10_t* members);
} ncclNet_v10_t;
