// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

// The part of CUDA's driver API that weft uses, declared here, as no CUDA is needed where weft is built.
// Names, values and layouts are those of NVIDIA's cuda.h; where that is installed,
// tests/unit/cuda_headers_test.cc compares them. CUDA's own names are in the comments.
namespace weft::mem::gpu {

using Result32 = int;  // CUresult
constexpr Result32 kSuccess = 0;
constexpr Result32 kInvalidValue = 1;
constexpr Result32 kOutOfMemory = 2;
constexpr Result32 kDeinitialized = 4;  // the process is ending
constexpr Result32 kNotReady = 600;     // the work that was asked about is under way
constexpr Result32 kNotSupported = 801;

using Address = unsigned long long;  // CUdeviceptr
using Context = void*;               // CUcontext
using Stream = void*;                // CUstream
using Event = void*;                 // CUevent

enum DeviceAttribute : int {
  kMajor = 75,
  kMinor = 76,
  kHostPageTables = 100,  // coherent with the processor: Grace and GPU by C2C
  kVirtualMemory = 102,
  kDescriptorHandles = 103,  // an allocation can be handed to another process by a descriptor
  kGpuDirectRdma = 116,      // nvidia_p2p_get_pages and what builds on it
  kWritesOrdering = 118,     // which readers see a card's writes without a flush
  kDmabufSupported = 124,
};
// Values of kWritesOrdering: from 100 on the GPU itself, from 200 on all GPUs.
constexpr int kOrderedForOwner = 100;

enum PointerAttribute : int {
  kMemoryType = 2,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kRangeStart = 11,
  kRangeSize = 12,
};
constexpr unsigned kTypeHost = 1;
constexpr unsigned kTypeDevice = 2;

constexpr int kDmabufHandle = 1;                // of cuMemGetHandleForAddressRange
constexpr unsigned long long kPcieMapping = 1;  // its flag, from CUDA 12.8 on
constexpr int kDescriptor = 1;                  // of cuMemExportToShareableHandle: a file descriptor
constexpr int kRelaxedCapture = 2;              // of cuThreadExchangeStreamCaptureMode
constexpr unsigned kNonBlockingStream = 1;      // of cuStreamCreate
constexpr unsigned kEventWithoutTime = 2;       // of cuEventCreate
constexpr unsigned kReachPeersLazily = 1;       // of cuIpcOpenMemHandle, which allows no other flag

using Allocation = unsigned long long;  // CUmemGenericAllocationHandle

// CUmemLocation: the memory of one GPU.
struct Location {
  int type = 1;
  int gpu = 0;  // its ordinal, not its handle
};

// CUmemAllocationProp: how an allocation is made.
struct AllocationProperties {
  int type = 1;  // pinned, the only one there is
  int handles = kDescriptor;
  Location location;
  void* windows = nullptr;
  unsigned char flags[8] = {};
};

// CUmemAccessDesc: a GPU that may reach a mapping.
struct Access {
  Location location;
  int flags = 3;  // read and write
};

// CUipcMemHandle: names a whole allocation of cuMemAlloc to other processes. Opaque, and passed by value.
struct IpcHandle {
  unsigned char bytes[64] = {};
};

// The functions, by the names that libcuda.so.1 exports: a suffix names the version of the function. Null:
// this driver has none; only the last ones may be.
struct Functions {
  Result32 (*cuInit)(unsigned flags) = nullptr;
  Result32 (*cuDriverGetVersion)(int* version) = nullptr;
  Result32 (*cuGetErrorName)(Result32 error, const char** name) = nullptr;
  Result32 (*cuDeviceGetCount)(int* count) = nullptr;
  Result32 (*cuDeviceGet)(int* device, int ordinal) = nullptr;
  Result32 (*cuDeviceGetName)(char* name, int length, int device) = nullptr;
  Result32 (*cuDeviceGetPCIBusId)(char* text, int length, int device) = nullptr;
  Result32 (*cuDeviceGetAttribute)(int* value, int attribute, int device) = nullptr;
  Result32 (*cuCtxGetDevice)(int* device) = nullptr;
  Result32 (*cuCtxPushCurrent_v2)(Context context) = nullptr;
  Result32 (*cuCtxPopCurrent_v2)(Context* context) = nullptr;
  Result32 (*cuDevicePrimaryCtxRetain)(Context* context, int device) = nullptr;
  Result32 (*cuDevicePrimaryCtxRelease_v2)(int device) = nullptr;
  Result32 (*cuDevicePrimaryCtxGetState)(int device, unsigned* flags, int* active) = nullptr;
  Result32 (*cuMemAlloc_v2)(Address* address, size_t bytes) = nullptr;
  Result32 (*cuMemFree_v2)(Address address) = nullptr;
  Result32 (*cuMemcpyHtoDAsync_v2)(Address to, const void* from, size_t bytes, Stream stream) = nullptr;
  Result32 (*cuMemcpyDtoHAsync_v2)(void* to, Address from, size_t bytes, Stream stream) = nullptr;
  Result32 (*cuStreamCreate)(Stream* stream, unsigned flags) = nullptr;
  Result32 (*cuStreamDestroy_v2)(Stream stream) = nullptr;
  Result32 (*cuStreamSynchronize)(Stream stream) = nullptr;
  Result32 (*cuThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  Result32 (*cuPointerGetAttributes)(unsigned count, int* attributes, void** values, Address of) = nullptr;
  // From CUDA 11.7 on:
  Result32 (*cuMemGetHandleForAddressRange)(void* handle, Address address, size_t bytes, int type,
                                            unsigned long long flags) = nullptr;
  // From CUDA 10.2 on; all of them or none is used:
  Result32 (*cuEventCreate)(Event* event, unsigned flags) = nullptr;
  Result32 (*cuEventDestroy_v2)(Event event) = nullptr;
  Result32 (*cuEventRecord)(Event event, Stream stream) = nullptr;
  Result32 (*cuEventQuery)(Event event) = nullptr;
  Result32 (*cuMemHostAlloc)(void** address, size_t bytes, unsigned flags) = nullptr;
  Result32 (*cuMemFreeHost)(void* address) = nullptr;
  Result32 (*cuMemcpyDtoDAsync_v2)(Address to, Address from, size_t bytes, Stream stream) = nullptr;
  Result32 (*cuMemCreate)(Allocation* allocation, size_t bytes, const AllocationProperties* properties,
                          unsigned long long flags) = nullptr;
  Result32 (*cuMemRelease)(Allocation allocation) = nullptr;
  Result32 (*cuMemRetainAllocationHandle)(Allocation* allocation, void* address) = nullptr;
  Result32 (*cuMemExportToShareableHandle)(void* handle, Allocation allocation, int type,
                                           unsigned long long flags) = nullptr;
  Result32 (*cuMemImportFromShareableHandle)(Allocation* allocation, void* handle, int type) = nullptr;
  Result32 (*cuMemAddressReserve)(Address* address, size_t bytes, size_t alignment, Address wanted,
                                  unsigned long long flags) = nullptr;
  Result32 (*cuMemAddressFree)(Address address, size_t bytes) = nullptr;
  Result32 (*cuMemMap)(Address address, size_t bytes, size_t offset, Allocation allocation,
                       unsigned long long flags) = nullptr;
  Result32 (*cuMemUnmap)(Address address, size_t bytes) = nullptr;
  Result32 (*cuMemSetAccess)(Address address, size_t bytes, const Access* access, size_t count) = nullptr;
  // CUDA IPC; all of them or none is used:
  Result32 (*cuIpcGetMemHandle)(IpcHandle* handle, Address address) = nullptr;
  Result32 (*cuIpcOpenMemHandle_v2)(Address* address, IpcHandle handle, unsigned flags) = nullptr;
  Result32 (*cuIpcCloseMemHandle)(Address address) = nullptr;
};

}  // namespace weft::mem::gpu
