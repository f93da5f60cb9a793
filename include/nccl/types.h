// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The types and constants that every version of NCCL's network table shares. They keep NCCL's names
// and stay plain C, because NCCL reads these bytes directly; no code of ours may be included here.
// Nothing here has state: any thread may use it. Sizes are bytes unless a comment says otherwise.
// Every value is compared with measured NCCL 2.30.7 data by tests/abi.
#pragma once

#include <stddef.h>
#include <stdint.h>

// What a call returns. A value other than success or in-progress, returned on the data path, breaks
// the whole communicator, so "try again later" is expressed through output arguments instead.
typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,  // since 2.30.3; an older NCCL prints it as an unknown error
  ncclNumResults = 9
} ncclResult_t;

// Element types. A newer NCCL may pass a larger value than the last one known here.
typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,  // both 8-bit floats since 2.24.3
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

// What NCCL is asked to do. A newer NCCL may pass a larger value than the last one known here.
typedef enum {
  ncclFuncBroadcast = 0,
  ncclFuncReduce = 1,
  ncclFuncAllGather = 2,
  ncclFuncReduceScatter = 3,
  ncclFuncAllReduce = 4,
  ncclFuncSendRecv = 5,
  ncclFuncSend = 6,
  ncclFuncRecv = 7,
  ncclFuncAlltoAll = 8,
  ncclFuncScatter = 9,
  ncclFuncGather = 10,
  ncclFuncAllGatherV = 11,
  ncclFuncPutSignal = 12,
  ncclFuncSignal = 13,
  ncclFuncWaitSignal = 14,
  ncclNumFuncs = 15
} ncclFunc_t;

// Reductions. The last enumerator only forces the width, so user-defined handles fit.
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

// How loud a log line is; the user's threshold is applied inside NCCL's logger.
typedef enum {
  NCCL_LOG_NONE = 0,
  NCCL_LOG_VERSION = 1,
  NCCL_LOG_WARN = 2,
  NCCL_LOG_INFO = 3,
  NCCL_LOG_ABORT = 4,
  NCCL_LOG_TRACE = 5
} ncclDebugLogLevel;

// Which part of the system a log line is about: a bit set, for the logger's flags argument.
typedef enum {
  NCCL_INIT = 0x1,
  NCCL_COLL = 0x2,
  NCCL_P2P = 0x4,
  NCCL_SHM = 0x8,
  NCCL_NET = 0x10,
  NCCL_GRAPH = 0x20,
  NCCL_TUNING = 0x40,
  NCCL_ENV = 0x80,
  NCCL_ALLOC = 0x100,
  NCCL_CALL = 0x200,
  NCCL_PROXY = 0x400,
  NCCL_NVLS = 0x800,
  NCCL_BOOTSTRAP = 0x1000,
  NCCL_REG = 0x2000,
  NCCL_PROFILE = 0x4000,
  NCCL_RAS = 0x8000,
  NCCL_DESTROY = 0x10000,
  NCCL_ALLOC_HOST = 0x20000,
  NCCL_ALL = ~0
} ncclDebugLogSubSys;

// NCCL's printf-like logger, handed to init. Callable from any thread.
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel level, unsigned long flags, const char* file, int line,
                                  const char* format, ...);

// What a call of the profiler callback reports.
enum {
  ncclProfilerNetEventStart = 0,
  ncclProfilerNetEventStop = 1,
  ncclProfilerNetEventUpdate = 2,
  ncclProfilerNetEventUpdateAndStop = 3
};

// Reports a network event to whichever profiler is loaded (v10 tables and later). Start writes
// *eventHandle only if the profiler asked for network events, so set it to null before and skip the
// later calls while it still is. pluginId says how extData is to be read: see the descriptors below.
typedef ncclResult_t (*ncclProfilerCallback_t)(void** eventHandle, int type, void* parentHandle,
                                               int64_t pluginId, void* extData);

// A profiler pluginId is a descriptor family in the upper bits and its version in the lower ones.
#define NCCL_PROFILER_NET_VER_BITS 16
#define NCCL_PROFILER_NET_VER_MASK 0xffffU
#define NCCL_PROFILER_NET_TYPE_MASK 0xffff0000U

typedef enum {
  NCCL_PROFILER_NET_TYPE_IB = 0x10000,
  NCCL_PROFILER_NET_TYPE_SOCK = 0x20000
} ncclProfilerNetType;

// Describes one work request on an InfiniBand queue pair.
#define NCCL_PROFILER_NET_IB_VER 1
enum { ncclProfileQp = 1 };
typedef struct {
  uint8_t type;  // ncclProfileQp
  struct {
    int device;      // index as reported by devices
    uint64_t wr_id;  // the work request's own id
    int opcode;      // verbs opcode
    int qpNum;
    size_t length;
  } qp;
} ncclProfilerNetIbDescr_v1_t;

// Describes one transfer on a socket.
#define NCCL_PROFILER_NET_SOCKET_VER 1
enum { ncclProfileSocket = 1 };
typedef struct {
  uint8_t type;  // ncclProfileSocket
  struct {
    int fd;
    int op;
    size_t length;
  } sock;
} ncclProfilerNetSockDescr_v1_t;

// Memory kinds: a bit set in ptrSupport, a single bit in the type argument of regMr.
#define NCCL_PTR_HOST 0x1
#define NCCL_PTR_CUDA 0x2
#define NCCL_PTR_DMABUF 0x4

// The opaque bytes that listen fills and NCCL carries to the connecting side: 128 in all versions
// declared here.
#define NCCL_NET_HANDLE_MAXSIZE 128

// How many requests of one comm NCCL promises not to exceed: 8 until 2.18, 32 since. A grouped
// receive counts once.
#define NCCL_NET_MAX_REQUESTS 32

// Upper bound of maxP2pBytes and maxCollBytes (1 TiB); zero or more than this fails the set-up.
#define NCCL_MAX_NET_SIZE_BYTES (1LL << 40)

// What NCCL assumes as the largest message of a table that cannot say it (v8 and older): 1 GiB.
#define MAX_NET_SIZE (1LL << 30)

// Written by NCCL into *request before an irecv whose completion the GPU will see in the data itself.
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1

// Reserved by NCCL for requests that cover several messages; nothing in 2.30.7 sends it.
#define NCCL_NET_MULTI_REQUEST 0x2

// Where the data path runs. Only HOST (the proxy thread) and UNPACK are accepted from a network table.
typedef enum {
  NCCL_NET_DEVICE_HOST = 0,
  NCCL_NET_DEVICE_UNPACK = 1,
  NCCL_NET_DEVICE_GIN_PROXY = 2,
  NCCL_NET_DEVICE_GIN_GDAKI = 3,
  NCCL_NET_DEVICE_GIN_GPI = 4
} ncclNetDeviceType;

#define NCCL_NET_DEVICE_INVALID_VERSION 0
#define NCCL_NET_DEVICE_UNPACK_VERSION 7
#define NCCL_NET_MTU_SIZE 4096

// What a transport with device-side code hands to the GPU. For a HOST device NCCL passes a pointer to
// a null pointer, or null itself: leave it alone.
typedef struct {
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  void* handle;
  size_t size;
  int needsProxyProgress;
} ncclNetDeviceHandle_v7_t;
