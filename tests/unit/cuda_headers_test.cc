// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstddef>
#include <cstdio>
#include <cuda.h>
#include <type_traits>

#include "src/mem/gpu/abi.h"

// What abi.h declares against NVIDIA's own header, where that is installed. All of it is decided by the
// compiler; the program only says so.
namespace weft::mem::gpu {
namespace {

static_assert(kSuccess == CUDA_SUCCESS && kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(sizeof(Address) == sizeof(CUdeviceptr) && sizeof(Result32) == sizeof(CUresult));

static_assert(int{kMajor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(int{kMinor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(int{kHostPageTables} == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
static_assert(int{kGpuDirectRdma} == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
static_assert(int{kWritesOrdering} == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
static_assert(int{kVirtualMemory} == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(int{kDescriptorHandles} == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(int{kDmabufSupported} == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
static_assert(kOrderedForOwner == CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);

static_assert(int{kMemoryType} == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(int{kBufferId} == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(int{kIsManaged} == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(int{kDeviceOrdinal} == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(int{kRangeStart} == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
static_assert(int{kRangeSize} == CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(kTypeHost == CU_MEMORYTYPE_HOST && kTypeDevice == CU_MEMORYTYPE_DEVICE);

static_assert(kDmabufHandle == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
static_assert(kDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(sizeof(Allocation) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handles) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(Access) == sizeof(CUmemAccessDesc) &&
              offsetof(Access, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(Location) == sizeof(CUmemLocation) &&
              offsetof(Location, gpu) == offsetof(CUmemLocation, id));
static_assert(AllocationProperties{}.type == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(Location{}.type == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(Access{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kRelaxedCapture == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kNonBlockingStream == CU_STREAM_NON_BLOCKING);
static_assert(kEventWithoutTime == CU_EVENT_DISABLE_TIMING && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(kReachPeersLazily == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(kPcieMapping == CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE);

// As many parameters, of the same sizes: each pointer is one.
template <class... Ours, class... Theirs>
constexpr bool alike(Result32 (*)(Ours...), CUresult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return ((sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>)&&...);
  }
}

constexpr Functions kNone;
#define WEFT_ALIKE(ours, theirs) \
  static_assert(alike(decltype(kNone.ours)(nullptr), decltype (&::theirs)(nullptr)))
WEFT_ALIKE(cuInit, cuInit);
WEFT_ALIKE(cuDriverGetVersion, cuDriverGetVersion);
WEFT_ALIKE(cuGetErrorName, cuGetErrorName);
WEFT_ALIKE(cuDeviceGetCount, cuDeviceGetCount);
WEFT_ALIKE(cuDeviceGet, cuDeviceGet);
WEFT_ALIKE(cuDeviceGetName, cuDeviceGetName);
WEFT_ALIKE(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId);
WEFT_ALIKE(cuDeviceGetAttribute, cuDeviceGetAttribute);
WEFT_ALIKE(cuCtxGetDevice, cuCtxGetDevice);
WEFT_ALIKE(cuCtxPushCurrent_v2, cuCtxPushCurrent);
WEFT_ALIKE(cuCtxPopCurrent_v2, cuCtxPopCurrent);
WEFT_ALIKE(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain);
WEFT_ALIKE(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease);
WEFT_ALIKE(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState);
WEFT_ALIKE(cuMemAlloc_v2, cuMemAlloc);
WEFT_ALIKE(cuMemFree_v2, cuMemFree);
WEFT_ALIKE(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync);
WEFT_ALIKE(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync);
WEFT_ALIKE(cuStreamCreate, cuStreamCreate);
WEFT_ALIKE(cuStreamDestroy_v2, cuStreamDestroy);
WEFT_ALIKE(cuStreamSynchronize, cuStreamSynchronize);
WEFT_ALIKE(cuEventCreate, cuEventCreate);
WEFT_ALIKE(cuEventDestroy_v2, cuEventDestroy);
WEFT_ALIKE(cuEventRecord, cuEventRecord);
WEFT_ALIKE(cuEventQuery, cuEventQuery);
WEFT_ALIKE(cuMemHostAlloc, cuMemHostAlloc);
WEFT_ALIKE(cuMemFreeHost, cuMemFreeHost);
WEFT_ALIKE(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode);
WEFT_ALIKE(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange);
WEFT_ALIKE(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync);
WEFT_ALIKE(cuMemCreate, cuMemCreate);
WEFT_ALIKE(cuMemRelease, cuMemRelease);
WEFT_ALIKE(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle);
WEFT_ALIKE(cuMemExportToShareableHandle, cuMemExportToShareableHandle);
WEFT_ALIKE(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle);
WEFT_ALIKE(cuMemAddressReserve, cuMemAddressReserve);
WEFT_ALIKE(cuMemAddressFree, cuMemAddressFree);
WEFT_ALIKE(cuMemMap, cuMemMap);
WEFT_ALIKE(cuMemUnmap, cuMemUnmap);
WEFT_ALIKE(cuMemSetAccess, cuMemSetAccess);
WEFT_ALIKE(cuIpcGetMemHandle, cuIpcGetMemHandle);
WEFT_ALIKE(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle);
WEFT_ALIKE(cuIpcCloseMemHandle, cuIpcCloseMemHandle);
WEFT_ALIKE(cuPointerGetAttributes, cuPointerGetAttributes);

}  // namespace
}  // namespace weft::mem::gpu

int main() {
  std::printf("cuda.h %d declares what abi.h does\n", CUDA_VERSION);
  return 0;
}
