// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <strings.h>

#include "tests/softgpu/api.h"
#include "tests/softgpu/device.h"
#include "tests/softgpu/settings.h"

// libnvidia-ml.so.1 as far as NCCL asks it: NVIDIA's nvml.h documents the functions. Device handles are
// ordinals plus one.

namespace {

constexpr int kOk = 0;
constexpr int kWrongArgument = 2;
constexpr int kUnsupported = 3;
constexpr int kMissing = 6;

int ordinalOf(void* handle) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(handle)) - 1;
}
void* handleOf(int ordinal) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(ordinal) + 1);
}

// The beginning of nvmlPciInfo_t. Its last member is left as it was: NCCL declares a shorter one than nvml.h.
struct PciInfo {
  char legacyAddress[16];
  unsigned domain, bus, device;
  unsigned ids, subsystemIds;  // of device and vendor
};

}  // namespace

SOFTGPU_API int nvmlInit_v2() {
  return kOk;
}
SOFTGPU_API int nvmlInit() {
  return kOk;
}
SOFTGPU_API int nvmlShutdown() {
  return kOk;
}

SOFTGPU_API const char* nvmlErrorString(int error) {
  switch (error) {
    case kOk:
      return "no error";
    case kWrongArgument:
      return "wrong argument";
    case kUnsupported:
      return "not something the software GPU has";
    case kMissing:
      return "no such software GPU";
    default:
      return "unknown error";
  }
}

SOFTGPU_API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(softgpu::deviceCount());
  return kOk;
}
SOFTGPU_API int nvmlDeviceGetCount(unsigned* count) {
  return nvmlDeviceGetCount_v2(count);
}

SOFTGPU_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (!softgpu::isDevice(static_cast<int>(index))) return kMissing;
  *device = handleOf(static_cast<int>(index));
  return kOk;
}
SOFTGPU_API int nvmlDeviceGetHandleByIndex(unsigned index, void** device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

SOFTGPU_API int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  for (int ordinal = 0; ordinal < softgpu::deviceCount(); ++ordinal) {
    if (strcasecmp(softgpu::devicePciAddress(ordinal).c_str(), address) != 0) continue;
    *device = handleOf(ordinal);
    return kOk;
  }
  return kMissing;
}
SOFTGPU_API int nvmlDeviceGetHandleByPciBusId(const char* address, void** device) {
  return nvmlDeviceGetHandleByPciBusId_v2(address, device);
}

SOFTGPU_API int nvmlDeviceGetIndex(void* device, unsigned* index) {
  *index = static_cast<unsigned>(ordinalOf(device));
  return kOk;
}

SOFTGPU_API int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  if (!softgpu::isDevice(ordinalOf(device))) return kWrongArgument;
  *major = static_cast<int>(softgpu::settings().major);
  *minor = static_cast<int>(softgpu::settings().minor);
  return kOk;
}

// No vendor made it.
SOFTGPU_API int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  if (!softgpu::isDevice(ordinalOf(device))) return kWrongArgument;
  const std::string address = softgpu::devicePciAddress(ordinalOf(device));
  *info = {};
  if (std::sscanf(address.c_str(), "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3)
    return kMissing;
  std::snprintf(info->legacyAddress, sizeof info->legacyAddress, "%s", address.c_str());
  return kOk;
}

SOFTGPU_API int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 4;
  return kOk;
}
SOFTGPU_API int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) {
  *lanes = 16;
  return kOk;
}

// 0: the two reach each other. 1: their chipset does not let them.
SOFTGPU_API int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = softgpu::settings().peer ? 0 : 1;
  return kOk;
}

// NVLink comes from the topology file that NCCL is given, not from here.
SOFTGPU_API int nvmlDeviceGetNvLinkState(void*, unsigned, int*) {
  return kUnsupported;
}
SOFTGPU_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) {
  return kUnsupported;
}
SOFTGPU_API int nvmlDeviceGetNvLinkRemotePciInfo(void*, unsigned, void*) {
  return kUnsupported;
}
SOFTGPU_API int nvmlDeviceGetNvLinkCapability(void*, unsigned, int, unsigned*) {
  return kUnsupported;
}
SOFTGPU_API int nvmlDeviceGetFieldValues(void*, int, void*) {
  return kUnsupported;
}
