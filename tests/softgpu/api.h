// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

// What the software GPU uses of CUDA's driver API, declared by ourselves: NVIDIA's cuda.h documents names,
// values and shapes, and check/headers_test.cc compares them with it where it is installed. Results of the
// runtime API have the same values.

// A function that the stand-in libraries export.
#define SOFTGPU_API extern "C" __attribute__((visibility("default")))

namespace softgpu {

using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kInvalidValue = 1;
constexpr Result kOutOfMemory = 2;
constexpr Result kNotInitialized = 3;
constexpr Result kNoDevice = 100;
constexpr Result kInvalidDevice = 101;
constexpr Result kInvalidContext = 201;
constexpr Result kAlreadyMapped = 208;
constexpr Result kPeerUnsupported = 217;
constexpr Result kInvalidHandle = 400;
constexpr Result kNotFound = 500;
constexpr Result kNotReady = 600;
constexpr Result kIllegalAddress = 700;
constexpr Result kPeerAlreadyEnabled = 704;
constexpr Result kAlreadyRegistered = 712;
constexpr Result kNotRegistered = 713;
constexpr Result kLaunchFailed = 719;
constexpr Result kNotPermitted = 800;
constexpr Result kNotSupported = 801;
constexpr Result kCaptureUnsupported = 900;
constexpr Result kCaptureInvalidated = 901;
constexpr Result kCaptureUnjoined = 904;
constexpr Result kUnknown = 999;

using DevicePointer = unsigned long long;  // CUdeviceptr

struct MemoryLocation {  // CUmemLocation
  int type;              // 1: a device; 2, 3, 4: the host
  int id;
};
constexpr int kLocationDevice = 1;

struct AllocationProperties {  // CUmemAllocationProp
  int type;
  int handleTypes;  // 1: POSIX file descriptor
  MemoryLocation location;
  void* windows;
  struct {
    unsigned char compression;
    unsigned char gpuDirectRdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

struct IpcHandle {  // CUipcMemHandle
  char bytes[64];
};

struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      void* event;
      int flags;
    } launchCompletion;
  } value;
};
constexpr int kAttributeLaunchCompletion = 12;

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3];
  unsigned block[3];
  unsigned sharedBytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attributeCount;
};

struct MemoryOperation {  // CUstreamBatchMemOpParams, as far as words are waited for and written
  int operation;
  DevicePointer address;
  uint64_t value;  // a 32-bit one is in the lower half
  unsigned flags;
  DevicePointer alias;
  uint64_t pad[1];
};

// Ends of the `extra` list of a launch: a buffer that holds all parameters.
constexpr uintptr_t kParameterBuffer = 1;
constexpr uintptr_t kParameterSize = 2;

}  // namespace softgpu
