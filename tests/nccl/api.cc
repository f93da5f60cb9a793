// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/nccl/api.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <utility>

namespace nccltest {

Nccl nccl{};
Cuda cuda{};

namespace {

// dlsym's answer as the function that it is.
template <typename Function>
bool take(void* library, const char* name, Function& function, std::string& why) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) why = std::string(name) + " is missing";
  return function != nullptr;
}

void takeNewer(void* lib) {
  std::string ignored;
  (void)take(lib, "ncclCommInitRankConfig", nccl.commInitRankConfig, ignored);
  (void)take(lib, "ncclCommFinalize", nccl.commFinalize, ignored);
  (void)take(lib, "ncclCommShrink", nccl.commShrink, ignored);
  (void)take(lib, "ncclCommRegister", nccl.commRegister, ignored);
  (void)take(lib, "ncclCommDeregister", nccl.commDeregister, ignored);
  (void)take(lib, "ncclMemAlloc", nccl.memAlloc, ignored);
  (void)take(lib, "ncclMemFree", nccl.memFree, ignored);
  (void)take(lib, "ncclCommWindowRegister", nccl.commWindowRegister, ignored);
  (void)take(lib, "ncclCommWindowDeregister", nccl.commWindowDeregister, ignored);
  (void)take(lib, "ncclPutSignal", nccl.putSignal, ignored);
  (void)take(lib, "ncclSignal", nccl.signal, ignored);
  (void)take(lib, "ncclWaitSignal", nccl.waitSignal, ignored);
  (void)take(lib, "ncclDevCommCreate", nccl.devCommCreate, ignored);
  (void)take(lib, "ncclDevCommDestroy", nccl.devCommDestroy, ignored);
}

bool takeNccl(void* lib, std::string& why) {
  takeNewer(lib);
  return take(lib, "ncclGetVersion", nccl.getVersion, why) &&
         take(lib, "ncclGetUniqueId", nccl.getUniqueId, why) &&
         take(lib, "ncclCommInitRank", nccl.commInitRank, why) &&
         take(lib, "ncclCommDestroy", nccl.commDestroy, why) &&
         take(lib, "ncclCommAbort", nccl.commAbort, why) && take(lib, "ncclCommSplit", nccl.commSplit, why) &&
         take(lib, "ncclCommGetAsyncError", nccl.commGetAsyncError, why) &&
         take(lib, "ncclCommCount", nccl.commCount, why) &&
         take(lib, "ncclCommUserRank", nccl.commUserRank, why) &&
         take(lib, "ncclAllReduce", nccl.allReduce, why) && take(lib, "ncclReduce", nccl.reduce, why) &&
         take(lib, "ncclBroadcast", nccl.broadcast, why) && take(lib, "ncclAllGather", nccl.allGather, why) &&
         take(lib, "ncclReduceScatter", nccl.reduceScatter, why) && take(lib, "ncclSend", nccl.send, why) &&
         take(lib, "ncclRecv", nccl.recv, why) && take(lib, "ncclGroupStart", nccl.groupStart, why) &&
         take(lib, "ncclGroupEnd", nccl.groupEnd, why) &&
         take(lib, "ncclGetLastError", nccl.getLastError, why);
}

bool takeCuda(void* lib, std::string& why) {
  return take(lib, "cudaGetDeviceCount", cuda.getDeviceCount, why) &&
         take(lib, "cudaSetDevice", cuda.setDevice, why) && take(lib, "cudaMalloc", cuda.malloc, why) &&
         take(lib, "cudaFree", cuda.free, why) && take(lib, "cudaMemcpy", cuda.memcpy, why) &&
         take(lib, "cudaMemset", cuda.memset, why) && take(lib, "cudaStreamCreate", cuda.streamCreate, why) &&
         take(lib, "cudaStreamDestroy", cuda.streamDestroy, why) &&
         take(lib, "cudaStreamSynchronize", cuda.streamSynchronize, why) &&
         take(lib, "cudaStreamQuery", cuda.streamQuery, why) &&
         take(lib, "cudaStreamBeginCapture", cuda.streamBeginCapture, why) &&
         take(lib, "cudaStreamEndCapture", cuda.streamEndCapture, why) &&
         take(lib, "cudaGraphInstantiateWithFlags", cuda.graphInstantiate, why) &&
         take(lib, "cudaGraphLaunch", cuda.graphLaunch, why) &&
         take(lib, "cudaGraphExecDestroy", cuda.graphExecDestroy, why) &&
         take(lib, "cudaGraphDestroy", cuda.graphDestroy, why);
}

bool dropsNetworkErrors() {
  int version = 0;
  expect(nccl.getVersion(&version), "ncclGetVersion");
  return version >= 22600 && version < 22800;
}

}  // namespace

bool openNccl(const std::string& file, std::string& why) {
  void* const library = dlopen(file.empty() ? "libnccl.so.2" : file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    why = dlerror();
    return false;
  }
  // The runtime that NCCL brought, else one of its own.
  void* runtime = nullptr;
  for (const char* name : {"libcudart.so.13", "libcudart.so.12"}) {
    if (runtime == nullptr) runtime = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  }
  for (const char* name : {"libcudart.so.13", "libcudart.so.12"}) {
    if (runtime == nullptr) runtime = dlopen(name, RTLD_NOW);
  }
  if (runtime == nullptr) {
    why = "no libcudart.so.13 or .12";
    return false;
  }
  return takeNccl(library, why) && takeCuda(runtime, why);
}

void expect(int result, const char* call) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: %d, %s\n", call, result,
               nccl.getLastError == nullptr ? "" : nccl.getLastError(nullptr));
  std::fflush(stdout);
  std::_Exit(1);
}

int errorOf(Comm comm) {
  static const bool dropped = dropsNetworkErrors();
  int error = 0;
  expect(nccl.commGetAsyncError(comm, &error), "ncclCommGetAsyncError");
  if (error != 0 || !dropped) return error;
  const std::string words = nccl.getLastError(comm);
  for (const char* end : {" ended: ", " left the group or failed", " failed: "})
    if (words.find(end) != std::string::npos) return kRemoteError;
  return 0;
}

}  // namespace nccltest
