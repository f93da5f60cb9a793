// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <string>

// NCCL's and the CUDA runtime's public functions, opened at run time, so that the programs here build without
// either and run with any version, on real GPUs as on the software GPU. Shapes and values are those of
// NVIDIA's nccl.h and cuda_runtime_api.h.
namespace nccltest {

struct UniqueId {
  char bytes[128];
};
using Comm = void*;
using Stream = void*;
using Window = void*;

constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC

struct WaitSignal {  // ncclWaitSignalDesc_t
  int count = 1;
  int peer = 0;
  int signal = 0;
  int context = 0;
};

// ncclDataType_t and ncclRedOp_t.
enum Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16 };
enum Operator { kSum, kProd, kMax, kMin, kAvg };

constexpr int kRemoteError = 6;  // of ncclResult_t
constexpr int kInProgress = 7;

// The head of ncclConfig_t, as version 2.14 had it; what came later is then as if it were not set.
struct CommConfig {
  size_t size = sizeof(CommConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 1;
};

struct Nccl {
  int (*getVersion)(int*);
  int (*getUniqueId)(UniqueId*);
  int (*commInitRank)(Comm*, int, UniqueId, int);
  int (*commDestroy)(Comm);
  int (*commAbort)(Comm);
  int (*commSplit)(Comm, int, int, Comm*, void*);
  int (*commGetAsyncError)(Comm, int*);
  int (*commCount)(Comm, int*);
  int (*commUserRank)(Comm, int*);
  int (*allReduce)(const void*, void*, size_t, int, int, Comm, Stream);
  int (*reduce)(const void*, void*, size_t, int, int, int, Comm, Stream);
  int (*broadcast)(const void*, void*, size_t, int, int, Comm, Stream);
  int (*allGather)(const void*, void*, size_t, int, Comm, Stream);
  int (*reduceScatter)(const void*, void*, size_t, int, int, Comm, Stream);
  int (*send)(const void*, size_t, int, int, Comm, Stream);
  int (*recv)(void*, size_t, int, int, Comm, Stream);
  int (*groupStart)();
  int (*groupEnd)();
  const char* (*getLastError)(Comm);
  // Null where this NCCL is too old for them.
  int (*commInitRankConfig)(Comm*, int, UniqueId, int, CommConfig*);
  int (*commFinalize)(Comm);
  int (*commShrink)(Comm, int*, int, Comm*, CommConfig*, int);
  int (*commRegister)(Comm, void*, size_t, void**);
  int (*commDeregister)(Comm, void*);
  int (*memAlloc)(void**, size_t);
  int (*memFree)(void*);
  int (*commWindowRegister)(Comm, void*, size_t, Window*, int);
  int (*commWindowDeregister)(Comm, Window);
  int (*putSignal)(const void*, size_t, int, int, Window, size_t, int, int, unsigned, Comm, Stream);
  int (*signal)(int, int, int, unsigned, Comm, Stream);
  int (*waitSignal)(int, WaitSignal*, Comm, Stream);
  int (*devCommCreate)(Comm, const void*, void*);
  int (*devCommDestroy)(Comm, const void*);
};

struct Cuda {
  int (*getDeviceCount)(int*);
  int (*setDevice)(int);
  int (*malloc)(void**, size_t);
  int (*free)(void*);
  int (*memcpy)(void*, const void*, size_t, int);
  int (*memset)(void*, int, size_t);
  int (*streamCreate)(Stream*);
  int (*streamDestroy)(Stream);
  int (*streamSynchronize)(Stream);
  int (*streamQuery)(Stream);
  int (*streamBeginCapture)(Stream, int);
  int (*streamEndCapture)(Stream, void**);
  int (*graphInstantiate)(void**, void*, unsigned long long);
  int (*graphLaunch)(void*, Stream);
  int (*graphExecDestroy)(void*);
  int (*graphDestroy)(void*);
};
constexpr int kDefaultCopy = 4;  // cudaMemcpyDefault

// Opens both, NCCL from `file` or by the loader's path when it is empty. False: `why` says what is missing.
bool openNccl(const std::string& file, std::string& why);
// What openNccl found.
extern Nccl nccl;
extern Cuda cuda;

// Ends the program with a line that names rank, call and NCCL's own words unless `result` is 0.
void expect(int result, const char* call);

// What NCCL says of a communicator, 0 while all is well. NCCL 2.26 and 2.27 drop what a call of a network
// plugin returns (progressOps in their src/proxy.cc), so there the plugin's last words stand for it.
int errorOf(Comm comm);

}  // namespace nccltest
