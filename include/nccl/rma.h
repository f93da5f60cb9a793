// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL's tables of one-sided operations, version 13 to 16: puts, gets and signals into windows that all ranks
// of a communicator register alike. NCCL 2.30.7 loads v14 and v13, 2.31.2 v15 too, 2.32.3 v16 too. NCCL's
// proxy for device-initiated puts drives the same table.
//
// Threads: init, listen, connect, createContext, the registrations and all closing calls come from the thread
// of the application. iput, iputSignal, iget, iflush, test and rmaProgress come from one proxy thread a
// communicator, also while a registration is under way. queryLastError may come from any thread.
//
// A request is never null on success, but for iflush, where null means that nothing has to be awaited. `rank`
// counts within the ranks given to connect. Offsets count from the begin of the window on the rank that owns
// the memory; every handle in a call is the caller's own.
#pragma once

#include <stdbool.h>

#include "nccl/net_v12.h"

// Flags of a registration.
#define NCCL_NET_MR_FLAG_FORCE_SO 1            // what is written here is seen after data that was put before
#define NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET 2  // nobody but the plugin writes these words after registration

// signalOp of iputSignal: adds one, or adds signalValue, to a 64-bit word.
#define NCCL_NET_SIGNAL_OP_INC 1
#define NCCL_NET_SIGNAL_OP_ADD 2

// optFlags from v15 on: another operation to the same rank follows at once.
#define NCCL_RMA_OPT_AGGREGATE_REQUESTS 1

typedef struct {
  int nSignals;
  int nCounters;
  int nContexts;
  int queueDepth;
  int trafficClass;
} ncclRmaConfig_v13_t;

typedef struct {
  int nContexts;
  int trafficClass;
  int rankStride;  // device-initiated puts reach every rankStride-th rank only
} ncclRmaConfig_v14_t;

typedef ncclRmaConfig_v14_t ncclRmaConfig_v15_t;
typedef ncclRmaConfig_v14_t ncclRmaConfig_v16_t;

typedef struct {
  bool flushesAllPutsOnAnySignal;  // every put that arrived before any signal is visible with that signal
} ncclRmaProperties_v16_t;

// The device handle of createContext and the second handle of a registration are for GPU code; NCCL's
// adapter may pass null for either place.
typedef struct {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t commId, ncclDebugLogger_t logger);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v12_t* properties);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* context, void* handles[], int ranks, int rank, void* listenComm,
                          void** collComm);
  ncclResult_t (*createContext)(void* collComm, ncclRmaConfig_v13_t* config, void** rmaContext,
                                ncclNetDeviceHandle_v11_t** deviceHandle);
  ncclResult_t (*regMrSym)(void* collComm, void* data, size_t size, int type, uint64_t flags, void** mhandle,
                           void** ginHandle);
  ncclResult_t (*regMrSymDmaBuf)(void* collComm, void* data, size_t size, int type, uint64_t offset, int fd,
                                 uint64_t flags, void** mhandle, void** ginHandle);
  ncclResult_t (*deregMrSym)(void* collComm, void* mhandle);
  ncclResult_t (*destroyContext)(void* rmaContext);
  ncclResult_t (*closeColl)(void* collComm);
  ncclResult_t (*closeListen)(void* listenComm);
  ncclResult_t (*iput)(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle, size_t size,
                       uint64_t targetOffset, void* targetMhandle, uint32_t rank, void** request);
  ncclResult_t (*iputSignal)(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                             size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                             uint64_t signalOffset, void* signalMhandle, uint64_t signalValue,
                             uint32_t signalOp, void** request);
  ncclResult_t (*iget)(void* rmaContext, int context, uint64_t remoteOffset, void* remoteMhandle, size_t size,
                       uint64_t localOffset, void* localMhandle, uint32_t rank, void** request);
  ncclResult_t (*iflush)(void* rmaContext, int context, void* mhandle, uint32_t rank, void** request);
  ncclResult_t (*test)(void* collComm, void* request, int* done);
  ncclResult_t (*ginProgress)(void* rmaContext);
  ncclResult_t (*queryLastError)(void* rmaContext, bool* failed);
  ncclResult_t (*finalize)(void* context);
} ncclRma_v13_t;

// New: no device handles, and a signal may be a weak one, seen after its own put alone.
typedef struct {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t commId, ncclDebugLogger_t logger);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v12_t* properties);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* context, void* handles[], int ranks, int rank, void* listenComm,
                          void** collComm);
  ncclResult_t (*createContext)(void* collComm, ncclRmaConfig_v14_t* config, void** rmaContext);
  ncclResult_t (*regMrSym)(void* collComm, void* data, size_t size, int type, uint64_t flags, void** mhandle);
  ncclResult_t (*regMrSymDmaBuf)(void* collComm, void* data, size_t size, int type, uint64_t offset, int fd,
                                 uint64_t flags, void** mhandle);
  ncclResult_t (*deregMrSym)(void* collComm, void* mhandle);
  ncclResult_t (*destroyContext)(void* rmaContext);
  ncclResult_t (*closeColl)(void* collComm);
  ncclResult_t (*closeListen)(void* listenComm);
  ncclResult_t (*iput)(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle, size_t size,
                       uint64_t targetOffset, void* targetMhandle, uint32_t rank, void** request);
  ncclResult_t (*iputSignal)(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                             size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                             uint64_t signalOffset, void* signalMhandle, uint64_t signalValue,
                             uint32_t signalOp, bool isStrongSignal, void** request);
  ncclResult_t (*iget)(void* rmaContext, int context, uint64_t remoteOffset, void* remoteMhandle, size_t size,
                       uint64_t localOffset, void* localMhandle, uint32_t rank, void** request);
  ncclResult_t (*iflush)(void* rmaContext, int context, void* mhandle, uint32_t rank, void** request);
  ncclResult_t (*test)(void* collComm, void* request, int* done);
  ncclResult_t (*rmaProgress)(void* rmaContext);
  ncclResult_t (*queryLastError)(void* rmaContext, bool* failed);
  ncclResult_t (*finalize)(void* context);
} ncclRma_v14_t;

// New: hints with every operation.
typedef struct {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t commId, ncclDebugLogger_t logger);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v12_t* properties);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* context, void* handles[], int ranks, int rank, void* listenComm,
                          void** collComm);
  ncclResult_t (*createContext)(void* collComm, ncclRmaConfig_v15_t* config, void** rmaContext);
  ncclResult_t (*regMrSym)(void* collComm, void* data, size_t size, int type, uint64_t flags, void** mhandle);
  ncclResult_t (*regMrSymDmaBuf)(void* collComm, void* data, size_t size, int type, uint64_t offset, int fd,
                                 uint64_t flags, void** mhandle);
  ncclResult_t (*deregMrSym)(void* collComm, void* mhandle);
  ncclResult_t (*destroyContext)(void* rmaContext);
  ncclResult_t (*closeColl)(void* collComm);
  ncclResult_t (*closeListen)(void* listenComm);
  ncclResult_t (*iput)(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle, size_t size,
                       uint64_t targetOffset, void* targetMhandle, uint32_t rank, uint32_t optFlags,
                       void** request);
  ncclResult_t (*iputSignal)(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                             size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                             uint64_t signalOffset, void* signalMhandle, uint64_t signalValue,
                             uint32_t signalOp, bool isStrongSignal, uint32_t optFlags, void** request);
  ncclResult_t (*iget)(void* rmaContext, int context, uint64_t remoteOffset, void* remoteMhandle, size_t size,
                       uint64_t localOffset, void* localMhandle, uint32_t rank, uint32_t optFlags,
                       void** request);
  ncclResult_t (*iflush)(void* rmaContext, int context, void* mhandle, uint32_t rank, void** request);
  ncclResult_t (*test)(void* collComm, void* request, int* done);
  ncclResult_t (*rmaProgress)(void* rmaContext);
  ncclResult_t (*queryLastError)(void* rmaContext, bool* failed);
  ncclResult_t (*finalize)(void* context);
} ncclRma_v15_t;

// New: getRmaProperties.
typedef struct {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t commId, ncclDebugLogger_t logger);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*getRmaProperties)(void* collComm, ncclRmaProperties_v16_t* properties);
  ncclResult_t (*getProperties)(int device, ncclNetProperties_v12_t* properties);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** listenComm);
  ncclResult_t (*connect)(void* context, void* handles[], int ranks, int rank, void* listenComm,
                          void** collComm);
  ncclResult_t (*createContext)(void* collComm, ncclRmaConfig_v16_t* config, void** rmaContext);
  ncclResult_t (*regMrSym)(void* collComm, void* data, size_t size, int type, uint64_t flags, void** mhandle);
  ncclResult_t (*regMrSymDmaBuf)(void* collComm, void* data, size_t size, int type, uint64_t offset, int fd,
                                 uint64_t flags, void** mhandle);
  ncclResult_t (*deregMrSym)(void* collComm, void* mhandle);
  ncclResult_t (*destroyContext)(void* rmaContext);
  ncclResult_t (*closeColl)(void* collComm);
  ncclResult_t (*closeListen)(void* listenComm);
  ncclResult_t (*iput)(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle, size_t size,
                       uint64_t targetOffset, void* targetMhandle, uint32_t rank, uint32_t optFlags,
                       void** request);
  ncclResult_t (*iputSignal)(void* rmaContext, int context, uint64_t sourceOffset, void* sourceMhandle,
                             size_t size, uint64_t targetOffset, void* targetMhandle, uint32_t rank,
                             uint64_t signalOffset, void* signalMhandle, uint64_t signalValue,
                             uint32_t signalOp, bool isStrongSignal, uint32_t optFlags, void** request);
  ncclResult_t (*iget)(void* rmaContext, int context, uint64_t remoteOffset, void* remoteMhandle, size_t size,
                       uint64_t localOffset, void* localMhandle, uint32_t rank, uint32_t optFlags,
                       void** request);
  ncclResult_t (*iflush)(void* rmaContext, int context, void* mhandle, uint32_t rank, void** request);
  ncclResult_t (*test)(void* collComm, void* request, int* done);
  ncclResult_t (*rmaProgress)(void* rmaContext);
  ncclResult_t (*queryLastError)(void* rmaContext, bool* failed);
  ncclResult_t (*finalize)(void* context);
} ncclRma_v16_t;
