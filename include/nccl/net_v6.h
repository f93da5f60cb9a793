// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL network table, version 6: loaded by NCCL 2.13.4 and every release since (last looked at:
// 2.30.7). The oldest version declared here; later headers describe only their differences.
// NCCL calls init, devices and getProperties on the user's thread, the connection and registration
// calls on its service thread, and isend, irecv, iflush and test on its progress thread. One comm's
// memory may be registered while another thread moves data on it.
#pragma once

#include "nccl/types.h"

// What NCCL 2.18 and older allow in flight on one comm.
#define NCCL_NET_MAX_REQUESTS_V6 8

// One device. NCCL passes the struct uninitialised and keeps the two string pointers, so set every
// field and let the strings live as long as the process.
typedef struct {
  char* name;      // unique among the devices
  char* pciPath;   // sysfs directory of the device, or null when it is not a PCI device
  uint64_t guid;   // equal guid and port: the same physical port
  int ptrSupport;  // NCCL_PTR_ bits that regMr takes
  int speed;       // Mb/s
  int port;
  float latency;  // microseconds
  int maxComms;
  int maxRecvs;  // largest n of irecv
} ncclNetProperties_v6_t;

typedef struct {
  const char* name;
  ncclResult_t (*init)(ncclDebugLogger_t logger);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v6_t* properties);

  // Connecting: connect and accept are repeated until they set the comm, and must not block.
  ncclResult_t (*listen)(int device, void* handle, void** listenComm);
  ncclResult_t (*connect)(int device, void* handle, void** sendComm);
  ncclResult_t (*accept)(void* listenComm, void** recvComm);

  // Registering memory of kind `type` (one NCCL_PTR_ bit). regMrDmaBuf may be null; its descriptor
  // belongs to the caller, who closes it right afterwards.
  ncclResult_t (*regMr)(void* comm, void* data, int size, int type, void** mhandle);
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                              void** mhandle);
  ncclResult_t (*deregMr)(void* comm, void* mhandle);

  // Moving data. A null *request means "not now, ask again", except from iflush, where it means that
  // there is nothing to wait for. The arrays have n entries and live only during the call.
  ncclResult_t (*isend)(void* sendComm, void* data, int size, int tag, void* mhandle, void** request);
  ncclResult_t (*irecv)(void* recvComm, int n, void** data, int* sizes, int* tags, void** mhandles,
                        void** request);
  // Makes what these receives wrote visible to the GPU.
  ncclResult_t (*iflush)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
  // Always writes *done; sizes may be null. Once done, the request is gone.
  ncclResult_t (*test)(void* request, int* done, int* sizes);

  // Closing, also after a failure: the comm may be null.
  ncclResult_t (*closeSend)(void* sendComm);
  ncclResult_t (*closeRecv)(void* recvComm);
  ncclResult_t (*closeListen)(void* listenComm);
} ncclNet_v6_t;
