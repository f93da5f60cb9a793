// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstddef>
#include <cstdio>
#include <cuda.h>

#include "tests/softgpu/api.h"

// What api.h declares against NVIDIA's own header, where that is installed. All of it is decided by the
// compiler; the program only says so.
namespace softgpu {
namespace {

static_assert(kSuccess == CUDA_SUCCESS && kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE && kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT && kInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kNotFound == CUDA_ERROR_NOT_FOUND && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kAlreadyMapped == CUDA_ERROR_ALREADY_MAPPED);
static_assert(kPeerUnsupported == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
static_assert(kPeerAlreadyEnabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(kAlreadyRegistered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(kNotRegistered == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
static_assert(kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED && kNotPermitted == CUDA_ERROR_NOT_PERMITTED);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kCaptureInvalidated == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(kCaptureUnjoined == CUDA_ERROR_STREAM_CAPTURE_UNJOINED && kUnknown == CUDA_ERROR_UNKNOWN);

static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr));
static_assert(sizeof(MemoryLocation) == sizeof(CUmemLocation) &&
              offsetof(MemoryLocation, id) == offsetof(CUmemLocation, id));
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED == 128 && CU_MEM_HANDLE_TYPE_FABRIC == 8);
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handleTypes) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, flags.gpuDirectRdma) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute) &&
              offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(kAttributeLaunchCompletion == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT);
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attributeCount) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(MemoryOperation) == sizeof(CUstreamBatchMemOpParams));
static_assert(offsetof(MemoryOperation, address) == offsetof(CUstreamBatchMemOpParams, waitValue.address));
static_assert(offsetof(MemoryOperation, value) == offsetof(CUstreamBatchMemOpParams, waitValue.value64));
static_assert(offsetof(MemoryOperation, flags) == offsetof(CUstreamBatchMemOpParams, writeValue.flags));

}  // namespace
}  // namespace softgpu

int main() {
  std::printf("cuda.h %d declares what api.h does\n", CUDA_VERSION);
  return 0;
}
