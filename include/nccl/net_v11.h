// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL network table, version 11: loaded by NCCL 2.28.3 and every release since (last looked at:
// 2.30.7). Against version 10 each communicator has a context of its own: init makes it (and takes the
// configuration back from connect), listen and connect receive it, finalize ends it. setNetAttr gives
// hints about the traffic to come. setNetAttr is called by two threads; the rest is as in version 6.
#pragma once

#include "nccl/net_v10.h"

typedef ncclNetDeviceHandle_v10_t ncclNetDeviceHandle_v11_t;
typedef ncclNetVDeviceProps_v10_t ncclNetVDeviceProps_v11_t;
typedef ncclNetCommConfig_v10_t ncclNetCommConfig_v11_t;

#define NCCL_NET_MAX_DEVS_PER_NIC_V11 NCCL_NET_MAX_DEVS_PER_NIC_V9

typedef struct {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v11_t vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;  // new: messages one request may cover; 1 when there is no such thing
} ncclNetProperties_v11_t;

#define NCCL_NET_ATTR_UNDEF (-1)

// How wide one direction of the coming traffic is.
typedef struct {
  int32_t maxConcurrentPeers;
  int32_t minConcurrentPeers;
  int32_t maxFlowsPerPeer;
  int32_t minFlowsPerPeer;
} ncclNetCommAttr_v11_t;

// A hint. op, algo and proto are bit sets indexed by NCCL's own enumerations, or all ones
// (NCCL_NET_ATTR_UNDEF) when unknown; algo and proto can be left over from an earlier operation.
typedef struct {
  ncclNetCommAttr_v11_t sendCommAttr;
  ncclNetCommAttr_v11_t recvCommAttr;
  uint32_t op;
  uint32_t algo;
  uint32_t proto;
} ncclNetAttr_v11_t;

typedef struct {
  const char* name;
  // commId is the same on all ranks of a communicator. Called once for each communicator that does not
  // share its parent's resources.
  ncclResult_t (*init)(void** context, uint64_t commId, ncclNetCommConfig_v11_t* config,
                       ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v11_t* properties);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* context, int device, void* handle, void** sendComm,
                          ncclNetDeviceHandle_v11_t** sendDevComm);
  ncclResult_t (*accept)(void* listenComm, void** recvComm, ncclNetDeviceHandle_v11_t** recvDevComm);
  ncclResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** mhandle);
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                              void** mhandle);
  ncclResult_t (*deregMr)(void* comm, void* mhandle);
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
  ncclResult_t (*makeVDevice)(int* device, ncclNetVDeviceProps_v11_t* members);

  // Called unguarded, so never null. The library may be unloaded right after the last one.
  ncclResult_t (*finalize)(void* context);
  // May be null; its result is ignored, and the hint lives only during the call.
  ncclResult_t (*setNetAttr)(void* context, ncclNetAttr_v11_t* attr);
} ncclNet_v11_t;
