// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL network table, version 9: loaded by NCCL 2.24.3 and every release since (last looked at:
// 2.30.7). Against version 8, isend and irecv size messages by size_t (iflush and test keep int),
// devices can be fused into virtual ones of up to four members through makeVDevice, and a device can
// ask for flushes and name its largest messages. Threads and life times are those of version 6.
#pragma once

#include "nccl/net_v8.h"

typedef ncclNetDeviceHandle_v8_t ncclNetDeviceHandle_v9_t;

#define NCCL_NET_MAX_DEVS_PER_NIC_V9 4

// The devices that a virtual one is made of; a physical device lists itself.
typedef struct {
  int ndevs;
  int devs[NCCL_NET_MAX_DEVS_PER_NIC_V9];
} ncclNetVDeviceProps_v9_t;

typedef struct {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;  // new: 1 asks for iflush even on GPUs that need none
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  ncclNetVDeviceProps_v9_t vProps;  // new
  size_t maxP2pBytes;               // new: 1 to NCCL_MAX_NET_SIZE_BYTES, anything else is an error
  size_t maxCollBytes;              // new: the same for collective offload
} ncclNetProperties_v9_t;

typedef struct {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t logger);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v9_t* properties);
  ncclResult_t (*listen)(int device, void* handle, void** listenComm);
  ncclResult_t (*connect)(int device, void* handle, void** sendComm, ncclNetDeviceHandle_v9_t** sendDevComm);
  ncclResult_t (*accept)(void* listenComm, void** recvComm, ncclNetDeviceHandle_v9_t** recvDevComm);
  ncclResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** mhandle);
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                              void** mhandle);
  ncclResult_t (*deregMr)(void* comm, void* mhandle);
  ncclResult_t (*isend)(void* sendComm, void* data, size_t size, int tag, void* mhandle, void** request);
  ncclResult_t (*irecv)(void* recvComm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
                        void** request);
  ncclResult_t (*iflush)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
  ncclResult_t (*test)(void* request, int* done, int* sizes);
  ncclResult_t (*closeSend)(void* sendComm);
  ncclResult_t (*closeRecv)(void* recvComm);
  ncclResult_t (*closeListen)(void* listenComm);
  ncclResult_t (*getDeviceMr)(void* comm, void* mhandle, void** deviceMhandle);
  ncclResult_t (*irecvConsumed)(void* recvComm, int n, void* request);

  // Fuses the listed devices; *device is the index of the new one, which devices() counts from then
  // on. May be null: then nothing is fused.
  ncclResult_t (*makeVDevice)(int* device, ncclNetVDeviceProps_v9_t* members);
} ncclNet_v9_t;
