// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/softgpu/api.h"

// The driver API as far as the software GPU has it, under the names that libcuda.so.1 exports. NVIDIA's
// cuda.h documents each; handles are void* here. The runtime stand-in calls these too. Any thread.

namespace softgpu {

// The address of a driver function by its name without version suffix; null when there is none.
SOFTGPU_API void* softgpu_entry_point(const char* name, int version);

}  // namespace softgpu

// Not of the driver API. Why that NCCL cannot be used with the software GPU, null when it can. That the
// function is there tells programs that this is the software GPU.
SOFTGPU_API const char* softgpu_refuses_nccl(int version);

// Nor this: asynchronous copies are begun, and none is done, until it is called with 0. Those that are under
// way are counted in any case.
SOFTGPU_API void softgpu_hold_copies(int hold);
// For tests: copies between memory of GPUs are refused, as after a fault of a GPU, until told otherwise.
SOFTGPU_API void softgpu_refuse_copies(int refuse);
SOFTGPU_API int softgpu_copies_under_way();
// For tests, with SOFTGPU_WAITS: a kernel runs from a call with 1 until one with 0. And how many calls of the
// driver wait for kernels.
SOFTGPU_API void softgpu_hold_kernel(int hold);
SOFTGPU_API int softgpu_calls_that_wait();

SOFTGPU_API softgpu::Result cuInit(unsigned flags);
SOFTGPU_API softgpu::Result cuDriverGetVersion(int* version);
SOFTGPU_API softgpu::Result cuGetErrorString(softgpu::Result error, const char** text);
SOFTGPU_API softgpu::Result cuGetErrorName(softgpu::Result error, const char** text);
SOFTGPU_API softgpu::Result cuGetProcAddress_v2(const char* name, void** function, int version,
                                                uint64_t flags, int* status);

SOFTGPU_API softgpu::Result cuDeviceGet(int* device, int ordinal);
SOFTGPU_API softgpu::Result cuDeviceGetCount(int* count);
SOFTGPU_API softgpu::Result cuDeviceGetName(char* name, int length, int device);
SOFTGPU_API softgpu::Result cuDeviceGetUuid(char* uuid, int device);
SOFTGPU_API softgpu::Result cuDeviceTotalMem_v2(size_t* bytes, int device);
SOFTGPU_API softgpu::Result cuDeviceGetAttribute(int* value, int attribute, int device);
SOFTGPU_API softgpu::Result cuDeviceGetPCIBusId(char* text, int length, int device);
SOFTGPU_API softgpu::Result cuDeviceGetByPCIBusId(int* device, const char* text);
SOFTGPU_API softgpu::Result cuDeviceCanAccessPeer(int* can, int device, int peer);
SOFTGPU_API softgpu::Result cuDeviceGetP2PAttribute(int* value, int attribute, int device, int peer);
SOFTGPU_API softgpu::Result cuDevicePrimaryCtxRetain(void** context, int device);
SOFTGPU_API softgpu::Result cuDevicePrimaryCtxRelease_v2(int device);
SOFTGPU_API softgpu::Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active);
SOFTGPU_API softgpu::Result cuCtxPushCurrent_v2(void* context);
SOFTGPU_API softgpu::Result cuCtxPopCurrent_v2(void** context);
SOFTGPU_API softgpu::Result cuCtxGetCurrent(void** context);
SOFTGPU_API softgpu::Result cuCtxSetCurrent(void* context);
SOFTGPU_API softgpu::Result cuCtxGetDevice(int* device);
SOFTGPU_API softgpu::Result cuCtxSynchronize();
SOFTGPU_API softgpu::Result cuCtxEnablePeerAccess(void* context, unsigned flags);

SOFTGPU_API softgpu::Result cuMemAlloc_v2(softgpu::DevicePointer* address, size_t size);
SOFTGPU_API softgpu::Result cuMemFree_v2(softgpu::DevicePointer address);
SOFTGPU_API softgpu::Result cuMemHostAlloc(void** address, size_t size, unsigned flags);
SOFTGPU_API softgpu::Result cuMemFreeHost(void* address);
SOFTGPU_API softgpu::Result cuMemHostRegister_v2(void* address, size_t size, unsigned flags);
SOFTGPU_API softgpu::Result cuMemHostUnregister(void* address);
SOFTGPU_API softgpu::Result cuMemHostGetDevicePointer_v2(softgpu::DevicePointer* device, void* host,
                                                         unsigned flags);
SOFTGPU_API softgpu::Result cuMemGetInfo_v2(size_t* free, size_t* total);
SOFTGPU_API softgpu::Result cuMemGetAddressRange_v2(softgpu::DevicePointer* base, size_t* size,
                                                    softgpu::DevicePointer address);
SOFTGPU_API softgpu::Result cuMemGetHandleForAddressRange(void* handle, softgpu::DevicePointer address,
                                                          size_t size, int type, unsigned long long flags);
SOFTGPU_API softgpu::Result cuPointerGetAttribute(void* value, int attribute, softgpu::DevicePointer address);
SOFTGPU_API softgpu::Result cuPointerSetAttribute(const void* value, int attribute,
                                                  softgpu::DevicePointer address);
SOFTGPU_API softgpu::Result cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                                   softgpu::DevicePointer address);
SOFTGPU_API softgpu::Result cuIpcGetMemHandle(softgpu::IpcHandle* handle, softgpu::DevicePointer address);
SOFTGPU_API softgpu::Result cuIpcOpenMemHandle_v2(softgpu::DevicePointer* address, softgpu::IpcHandle handle,
                                                  unsigned flags);
SOFTGPU_API softgpu::Result cuIpcCloseMemHandle(softgpu::DevicePointer address);
SOFTGPU_API softgpu::Result cuMemAllocAsync(softgpu::DevicePointer* address, size_t size, void* stream);
SOFTGPU_API softgpu::Result cuMemFreeAsync(softgpu::DevicePointer address, void* stream);

SOFTGPU_API softgpu::Result cuMemcpy(softgpu::DevicePointer to, softgpu::DevicePointer from, size_t size);
SOFTGPU_API softgpu::Result cuMemcpyAsync(softgpu::DevicePointer to, softgpu::DevicePointer from, size_t size,
                                          void* stream);
SOFTGPU_API softgpu::Result cuMemsetD8_v2(softgpu::DevicePointer to, unsigned char value, size_t size);
SOFTGPU_API softgpu::Result cuMemsetD8Async(softgpu::DevicePointer to, unsigned char value, size_t size,
                                            void* stream);

SOFTGPU_API softgpu::Result cuStreamCreate(void** stream, unsigned flags);
SOFTGPU_API softgpu::Result cuStreamDestroy_v2(void* stream);
SOFTGPU_API softgpu::Result cuStreamSynchronize(void* stream);
SOFTGPU_API softgpu::Result cuStreamQuery(void* stream);
SOFTGPU_API softgpu::Result cuStreamWaitEvent(void* stream, void* event, unsigned flags);
SOFTGPU_API softgpu::Result cuStreamGetFlags(void* stream, unsigned* flags);
SOFTGPU_API softgpu::Result cuStreamGetId(void* stream, unsigned long long* id);
SOFTGPU_API softgpu::Result cuStreamBatchMemOp_v2(void* stream, unsigned count,
                                                  const softgpu::MemoryOperation* operations, unsigned flags);
SOFTGPU_API softgpu::Result cuStreamWaitValue32_v2(void* stream, softgpu::DevicePointer address,
                                                   uint32_t value, unsigned flags);
SOFTGPU_API softgpu::Result cuStreamWaitValue64_v2(void* stream, softgpu::DevicePointer address,
                                                   uint64_t value, unsigned flags);
SOFTGPU_API softgpu::Result cuStreamWriteValue32_v2(void* stream, softgpu::DevicePointer address,
                                                    uint32_t value, unsigned flags);
SOFTGPU_API softgpu::Result cuStreamWriteValue64_v2(void* stream, softgpu::DevicePointer address,
                                                    uint64_t value, unsigned flags);
SOFTGPU_API softgpu::Result cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument);
SOFTGPU_API softgpu::Result cuEventCreate(void** event, unsigned flags);
SOFTGPU_API softgpu::Result cuEventDestroy_v2(void* event);
SOFTGPU_API softgpu::Result cuEventRecord(void* event, void* stream);
SOFTGPU_API softgpu::Result cuEventQuery(void* event);
SOFTGPU_API softgpu::Result cuEventSynchronize(void* event);
SOFTGPU_API softgpu::Result cuEventElapsedTime(float* milliseconds, void* from, void* to);

SOFTGPU_API softgpu::Result cuThreadExchangeStreamCaptureMode(int* mode);
SOFTGPU_API softgpu::Result cuStreamBeginCapture_v2(void* stream, int mode);
SOFTGPU_API softgpu::Result cuStreamEndCapture(void* stream, void** graph);
SOFTGPU_API softgpu::Result cuStreamIsCapturing(void* stream, int* status);
SOFTGPU_API softgpu::Result cuStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void** graph,
                                                      const void*** nodes, size_t* count);
SOFTGPU_API softgpu::Result cuStreamGetCaptureInfo_v3(void* stream, int* status, uint64_t* id, void** graph,
                                                      const void*** nodes, const void** edges, size_t* count);
SOFTGPU_API softgpu::Result cuStreamUpdateCaptureDependencies_v2(void* stream, void** nodes,
                                                                 const void* edges, size_t count,
                                                                 unsigned flags);
SOFTGPU_API softgpu::Result cuGraphAddEventRecordNode(void** node, void* graph, const void* const* nodes,
                                                      size_t count, void* event);
SOFTGPU_API softgpu::Result cuGraphAddDependencies_v2(void* graph, const void* const* from,
                                                      const void* const* to, const void* edges, size_t count);
SOFTGPU_API softgpu::Result cuUserObjectCreate(void** object, void* pointer, void (*destroy)(void*),
                                               unsigned count, unsigned flags);
SOFTGPU_API softgpu::Result cuUserObjectRelease(void* object, unsigned count);
SOFTGPU_API softgpu::Result cuGraphRetainUserObject(void* graph, void* object, unsigned count,
                                                    unsigned flags);
SOFTGPU_API softgpu::Result cuGraphInstantiateWithFlags(void** run, void* graph, unsigned long long flags);
SOFTGPU_API softgpu::Result cuGraphLaunch(void* run, void* stream);
SOFTGPU_API softgpu::Result cuGraphExecDestroy(void* run);
SOFTGPU_API softgpu::Result cuGraphDestroy(void* graph);

SOFTGPU_API softgpu::Result cuLibraryLoadData(void** library, const void* code, int* jitOptions,
                                              void** jitValues, unsigned jitCount, int* options,
                                              void** values, unsigned count);
SOFTGPU_API softgpu::Result cuLibraryUnload(void* library);
SOFTGPU_API softgpu::Result cuLibraryGetKernel(void** kernel, void* library, const char* name);
SOFTGPU_API softgpu::Result cuKernelGetFunction(void** function, void* kernel);
SOFTGPU_API softgpu::Result cuFuncGetAttribute(int* value, int attribute, void* function);
SOFTGPU_API softgpu::Result cuFuncSetAttribute(void* function, int attribute, int value);
SOFTGPU_API softgpu::Result cuLaunchKernel(void* function, unsigned gridX, unsigned gridY, unsigned gridZ,
                                           unsigned blockX, unsigned blockY, unsigned blockZ,
                                           unsigned sharedBytes, void* stream, void** parameters,
                                           void** extra);
SOFTGPU_API softgpu::Result cuLaunchKernelEx(const softgpu::LaunchConfig* config, void* function,
                                             void** parameters, void** extra);

SOFTGPU_API softgpu::Result cuMemAddressReserve(softgpu::DevicePointer* address, size_t size,
                                                size_t alignment, softgpu::DevicePointer wish,
                                                unsigned long long flags);
SOFTGPU_API softgpu::Result cuMemAddressFree(softgpu::DevicePointer address, size_t size);
SOFTGPU_API softgpu::Result cuMemCreate(void** handle, size_t size,
                                        const softgpu::AllocationProperties* properties,
                                        unsigned long long flags);
SOFTGPU_API softgpu::Result cuMemRelease(void* handle);
SOFTGPU_API softgpu::Result cuMemMap(softgpu::DevicePointer address, size_t size, size_t offset, void* handle,
                                     unsigned long long flags);
SOFTGPU_API softgpu::Result cuMemUnmap(softgpu::DevicePointer address, size_t size);
SOFTGPU_API softgpu::Result cuMemExportToShareableHandle(void* shared, void* handle, int type,
                                                         unsigned long long flags);
SOFTGPU_API softgpu::Result cuMemImportFromShareableHandle(void** handle, void* shared, int type);
