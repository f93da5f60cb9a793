// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>

#include "tests/softgpu/capture.h"
#include "tests/softgpu/device.h"
#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/memory.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/settings.h"
#include "tests/softgpu/stream.h"

using namespace softgpu;

namespace {

// Devices whose contexts were current before others were pushed. No destructor, as for the current one.
constexpr int kMostPushed = 16;
constexpr int kNone = -1;
thread_local int pushed[kMostPushed];
thread_local int pushedCount = 0;

struct Named {
  const char* name;
  const char* text;
};

const std::map<int, Named>& errors() {
  static const auto* const kErrors = &immortal<std::map<int, Named>>(std::map<int, Named>{
      {0, {"CUDA_SUCCESS", "no error"}},
      {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
      {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
      {3, {"CUDA_ERROR_NOT_INITIALIZED", "not initialised"}},
      {100, {"CUDA_ERROR_NO_DEVICE", "no software GPU is there"}},
      {101, {"CUDA_ERROR_INVALID_DEVICE", "no such device"}},
      {201, {"CUDA_ERROR_INVALID_CONTEXT", "no such context"}},
      {217, {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "GPUs do not reach each other"}},
      {400, {"CUDA_ERROR_INVALID_HANDLE", "no such object"}},
      {500, {"CUDA_ERROR_NOT_FOUND", "name not found"}},
      {600, {"CUDA_ERROR_NOT_READY", "not ready"}},
      {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "no memory at an address"}},
      {704, {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is enabled already"}},
      {712, {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "host memory is registered already"}},
      {713, {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "host memory is not registered"}},
      {719, {"CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"}},
      {800, {"CUDA_ERROR_NOT_PERMITTED", "not permitted"}},
      {801, {"CUDA_ERROR_NOT_SUPPORTED", "not something the software GPU does"}},
      {900, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not allowed while a stream is captured"}},
      {901, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture has failed"}},
      {999, {"CUDA_ERROR_UNKNOWN", "unknown error"}},
  });
  return *kErrors;
}

const Named& nameOf(Result error) {
  const auto found = errors().find(error);
  return found == errors().end() ? errors().at(999) : found->second;
}

}  // namespace

Result cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  return settings().visible.empty() ? kNoDevice : kSuccess;
}

Result cuDriverGetVersion(int* version) {
  *version = static_cast<int>(settings().driver);
  return kSuccess;
}

Result cuGetErrorString(Result error, const char** text) {
  *text = nameOf(error).text;
  return kSuccess;
}

Result cuGetErrorName(Result error, const char** text) {
  *text = nameOf(error).name;
  return kSuccess;
}

// Later versions of a function end in _v2, _v3 and are what the plain name means. Capture information changed
// its shape with driver 12.3: callers that ask for an earlier one get the second version.
void* softgpu::softgpu_entry_point(const char* name, int version) {
  const bool shapes = std::strcmp(name, "cuStreamGetCaptureInfo") == 0;
  const char* const suffixes[] = {"_v3", "_v2", ""};
  for (const char* suffix : suffixes) {
    if (shapes && version < 12030 && std::strcmp(suffix, "_v3") == 0) continue;
    Dl_info self{};
    dladdr(reinterpret_cast<void*>(&cuInit), &self);
    void* const library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void* const found = library == nullptr ? nullptr : dlsym(library, (std::string(name) + suffix).c_str());
    if (library != nullptr) dlclose(library);
    if (found != nullptr) return found;
  }
  return nullptr;
}

Result cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t, int* status) {
  *function = softgpu_entry_point(name, version);
  if (status != nullptr) *status = *function == nullptr ? 1 : 0;
  return *function == nullptr ? kNotFound : kSuccess;
}

SOFTGPU_API Result cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

Result cuDeviceGet(int* device, int ordinal) {
  if (!isDevice(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  *count = deviceCount();
  return kSuccess;
}

Result cuDeviceGetName(char* name, int length, int device) {
  if (!isDevice(device) || length <= 0) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(length), "%s", deviceName(device).c_str());
  return kSuccess;
}

Result cuDeviceGetUuid(char* uuid, int device) {
  if (!isDevice(device)) return kInvalidDevice;
  char bytes[16];
  deviceUuid(device, bytes);
  std::memcpy(uuid, bytes, sizeof bytes);
  return kSuccess;
}

SOFTGPU_API Result cuDeviceGetUuid_v2(char* uuid, int device) {
  return cuDeviceGetUuid(uuid, device);
}

Result cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (!isDevice(device)) return kInvalidDevice;
  *bytes = settings().memory;
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!isDevice(device)) return kInvalidDevice;
  *value = deviceAttribute(attribute, device);
  return kSuccess;
}

Result cuDeviceGetPCIBusId(char* text, int length, int device) {
  if (!isDevice(device) || length < 13) return kInvalidDevice;
  std::snprintf(text, static_cast<size_t>(length), "%s", devicePciAddress(device).c_str());
  return kSuccess;
}

Result cuDeviceGetByPCIBusId(int* device, const char* text) {
  for (int ordinal = 0; ordinal < deviceCount(); ++ordinal) {
    if (strcasecmp(devicePciAddress(ordinal).c_str(), text) != 0) continue;
    *device = ordinal;
    return kSuccess;
  }
  return kInvalidDevice;
}

Result cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!isDevice(device) || !isDevice(peer)) return kInvalidDevice;
  *can = device != peer && settings().peer ? 1 : 0;
  return kSuccess;
}

Result cuDeviceGetP2PAttribute(int* value, int attribute, int device, int peer) {
  constexpr int kAccess = 2;
  if (!isDevice(device) || !isDevice(peer)) return kInvalidDevice;
  *value = attribute == kAccess && settings().peer ? 1 : 0;
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(void** context, int device) {
  if (!isDevice(device)) return kInvalidDevice;
  *context = &contextOf(device);
  ++contextOf(device).users;
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
  if (!isDevice(device)) return kInvalidDevice;
  std::atomic<int>& users = contextOf(device).users;
  for (int seen = users; seen > 0;)
    if (users.compare_exchange_weak(seen, seen - 1)) return kSuccess;
  return kInvalidContext;
}

Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (!isDevice(device)) return kInvalidDevice;
  *flags = 0;
  *active = contextOf(device).users > 0 ? 1 : 0;
  return kSuccess;
}

Result cuCtxGetCurrent(void** context) {
  *context = hasContext() ? &contextOf(currentDevice()) : nullptr;
  return kSuccess;
}

Result cuCtxSetCurrent(void* context) {
  if (context == nullptr)
    leaveContext();
  else
    setCurrentDevice(static_cast<Context*>(context)->device);
  return kSuccess;
}

SOFTGPU_API Result cuCtxCreate_v3(void** context, void*, int, unsigned, int device) {
  const Result result = cuDevicePrimaryCtxRetain(context, device);
  return result == kSuccess ? cuCtxSetCurrent(*context) : result;
}

SOFTGPU_API Result cuCtxCreate_v2(void** context, unsigned, int device) {
  return cuCtxCreate_v3(context, nullptr, 0, 0, device);
}

SOFTGPU_API Result cuCtxDestroy_v2(void* context) {
  return context == nullptr ? kInvalidContext
                            : cuDevicePrimaryCtxRelease_v2(static_cast<Context*>(context)->device);
}

Result cuCtxPushCurrent_v2(void* context) {
  if (context == nullptr || pushedCount == kMostPushed) return kInvalidContext;
  pushed[pushedCount++] = hasContext() ? currentDevice() : kNone;
  return cuCtxSetCurrent(context);
}

Result cuCtxPopCurrent_v2(void** context) {
  if (!hasContext()) return kInvalidContext;
  if (context != nullptr) cuCtxGetCurrent(context);
  const int before = pushedCount > 0 ? pushed[--pushedCount] : kNone;
  if (before == kNone)
    leaveContext();
  else
    setCurrentDevice(before);
  return kSuccess;
}

Result cuCtxGetDevice(int* device) {
  if (!hasContext()) return kInvalidContext;
  *device = currentDevice();
  return kSuccess;
}

Result cuCtxSynchronize() {
  if (!hasContext()) return kInvalidContext;
  return mayDisturbCaptures() ? streamOf(nullptr).synchronize() : kCaptureUnsupported;
}

Result cuCtxEnablePeerAccess(void* context, unsigned) {
  if (context == nullptr) return kInvalidContext;
  return settings().peer ? kSuccess : kNotSupported;
}
