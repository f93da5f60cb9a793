// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <cstring>

#include "tests/softgpu/device.h"
#include "tests/softgpu/report.h"
#include "tests/softgpu/runtime/runtime.h"

namespace softgpu {

namespace {

// No destructor: NCCL asks in exit handlers.
thread_local Result lastError = kSuccess;
thread_local int chosen = 0;  // for threads without a context

// Whether the runtime has retained a device's context. Once is enough: it never gives one back.
std::atomic<bool> retained[kMostDevices];

Result enter(int device) {
  if (device < 0 || static_cast<size_t>(device) >= kMostDevices) return kInvalidDevice;
  void* context = nullptr;
  const Result found = cuDevicePrimaryCtxRetain(&context, device);
  if (found != kSuccess) return found;
  if (retained[device].exchange(true)) cuDevicePrimaryCtxRelease_v2(device);
  return cuCtxSetCurrent(context);
}

}  // namespace

Result keep(Result result) {
  if (result != kSuccess && result != kNotReady) lastError = result;
  return result;
}

void useContext() {
  int device = 0;
  if (cuCtxGetDevice(&device) != kSuccess) enter(chosen);
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API Result cudaGetLastError() {
  const Result last = lastError;
  lastError = kSuccess;
  return last;
}

SOFTGPU_API Result cudaPeekAtLastError() {
  return lastError;
}

SOFTGPU_API const char* cudaGetErrorString(Result error) {
  const char* text = "";
  cuGetErrorString(error, &text);
  return text;
}

SOFTGPU_API const char* cudaGetErrorName(Result error) {
  const char* text = "";
  cuGetErrorName(error, &text);
  return text;
}

SOFTGPU_API Result cudaRuntimeGetVersion(int* version) {
  *version = SOFTGPU_RUNTIME * 1000;
  return kSuccess;
}

SOFTGPU_API Result cudaDriverGetVersion(int* version) {
  return keep(cuDriverGetVersion(version));
}

SOFTGPU_API Result cudaGetDeviceCount(int* count) {
  cuDeviceGetCount(count);
  return keep(*count == 0 ? kNoDevice : kSuccess);
}

SOFTGPU_API Result cudaGetDevice(int* device) {
  int count = 0;
  if (cuCtxGetDevice(device) == kSuccess) return kSuccess;
  *device = chosen;  // to ask makes no context
  cuDeviceGetCount(&count);
  return keep(count > 0 ? kSuccess : kNoDevice);
}

SOFTGPU_API Result cudaSetDevice(int device) {
  const Result found = enter(device);
  if (found == kSuccess) chosen = device;
  return keep(found);
}

SOFTGPU_API Result cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return keep(cuDeviceGetAttribute(value, attribute, device));
}

SOFTGPU_API Result cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return keep(cuDeviceGetPCIBusId(text, length, device));
}

SOFTGPU_API Result cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return keep(cuDeviceGetByPCIBusId(device, text));
}

SOFTGPU_API Result cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return keep(cuDeviceCanAccessPeer(can, device, peer));
}

SOFTGPU_API Result cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  void* context = nullptr;
  useContext();
  const Result found = cuDevicePrimaryCtxRetain(&context, peer);
  if (found != kSuccess) return keep(found);
  const Result enabled = cuCtxEnablePeerAccess(context, flags);
  cuDevicePrimaryCtxRelease_v2(peer);
  return keep(enabled);
}

SOFTGPU_API Result cudaDeviceSynchronize() {
  useContext();
  return keep(cuCtxSynchronize());
}

SOFTGPU_API Result cudaDeviceSetLimit(int, size_t) {
  return kSuccess;
}

SOFTGPU_API Result cudaDeviceReset() {
  return kSuccess;
}

namespace {

// The head of cudaDeviceProp. CUDA 12 has an older field before the number of processors, for which the list
// is one longer.
struct DeviceProperties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luidMask;
  size_t totalMemory, sharedMemory;
  int registers, warp;
  size_t pitch;
  int mostThreads, threads[3], grid[3];
  size_t constantMemory;
  int major, minor;
  size_t textureAlignment, texturePitch;
  int processors[2];
};
constexpr size_t kProcessors = SOFTGPU_RUNTIME < 13 ? 1 : 0;
// Fields behind that head are zero: nobody here reads them.
constexpr size_t kPropertiesSize = SOFTGPU_RUNTIME < 13 ? 1032 : 1008;

Result fillProperties(void* target, int device) {
  DeviceProperties properties{};
  const Result found = cuDeviceGetName(properties.name, sizeof properties.name, device);
  if (found != kSuccess) return found;
  cuDeviceGetUuid(properties.uuid, device);
  cuDeviceTotalMem_v2(&properties.totalMemory, device);
  cuDeviceGetAttribute(&properties.major, 75, device);
  cuDeviceGetAttribute(&properties.minor, 76, device);
  cuDeviceGetAttribute(&properties.processors[kProcessors], 16, device);
  cuDeviceGetAttribute(&properties.mostThreads, 1, device);
  cuDeviceGetAttribute(&properties.warp, 10, device);
  std::memset(target, 0, kPropertiesSize);
  std::memcpy(target, &properties, sizeof properties);
  return kSuccess;
}

}  // namespace

SOFTGPU_API Result cudaGetDeviceProperties(void* properties, int device) {
  return keep(fillProperties(properties, device));
}

SOFTGPU_API Result cudaGetDeviceProperties_v2(void* properties, int device) {
  return keep(fillProperties(properties, device));
}

namespace {

Result entryPoint(const char* name, void** function, int version, int* status) {
  *function = softgpu_entry_point(name, version);
  if (status != nullptr) *status = *function == nullptr ? 1 : 0;
  return kSuccess;
}

}  // namespace

SOFTGPU_API Result cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                                    uint64_t, int* status) {
  return entryPoint(name, function, static_cast<int>(version), status);
}

SOFTGPU_API Result cudaGetDriverEntryPoint(const char* name, void** function, uint64_t, int* status) {
  return entryPoint(name, function, SOFTGPU_RUNTIME * 1000, status);
}
