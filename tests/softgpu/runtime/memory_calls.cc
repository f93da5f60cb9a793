// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"
#include "tests/softgpu/runtime/runtime.h"

using namespace softgpu;

namespace {

// The runtime's malloc and free take null and nothing for granted.
Result allocate(void** pointer, size_t size, Result (*with)(DevicePointer*, size_t)) {
  if (pointer == nullptr) return kInvalidValue;
  *pointer = nullptr;
  if (size == 0) return kSuccess;
  DevicePointer address = 0;
  const Result result = with(&address, size);
  *pointer = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  return result;
}

struct PointerAttributes {  // cudaPointerAttributes
  int type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

}  // namespace

SOFTGPU_API Result cudaMalloc(void** pointer, size_t size) {
  useContext();
  return keep(allocate(pointer, size, cuMemAlloc_v2));
}

SOFTGPU_API Result cudaFree(void* pointer) {
  useContext();
  return keep(cuMemFree_v2(addressOf(pointer)));
}

SOFTGPU_API Result cudaMallocAsync(void** pointer, size_t size, void*) {
  return cudaMalloc(pointer, size);
}

SOFTGPU_API Result cudaMallocFromPoolAsync(void** pointer, size_t size, void*, void*) {
  return cudaMalloc(pointer, size);
}

SOFTGPU_API Result cudaFreeAsync(void* pointer, void* stream) {
  useContext();
  return keep(cuMemFreeAsync(addressOf(pointer), stream));
}

SOFTGPU_API Result cudaHostAlloc(void** pointer, size_t size, unsigned flags) {
  useContext();
  return keep(cuMemHostAlloc(pointer, size, flags));
}

SOFTGPU_API Result cudaMallocHost(void** pointer, size_t size) {
  useContext();
  return keep(cuMemHostAlloc(pointer, size, 0));
}

SOFTGPU_API Result cudaFreeHost(void* pointer) {
  useContext();
  return keep(pointer == nullptr ? kSuccess : cuMemFreeHost(pointer));
}

SOFTGPU_API Result cudaHostRegister(void* pointer, size_t size, unsigned flags) {
  useContext();
  return keep(cuMemHostRegister_v2(pointer, size, flags));
}

SOFTGPU_API Result cudaHostUnregister(void* pointer) {
  return keep(cuMemHostUnregister(pointer));
}

SOFTGPU_API Result cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  DevicePointer address = 0;
  const Result result = cuMemHostGetDevicePointer_v2(&address, host, flags);
  if (result == kSuccess) *device = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  return keep(result);
}

SOFTGPU_API Result cudaMemGetInfo(size_t* free, size_t* total) {
  useContext();
  return keep(cuMemGetInfo_v2(free, total));
}

SOFTGPU_API Result cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  unsigned type = 0;
  if (cuPointerGetAttribute(&type, 2, addressOf(pointer)) != kSuccess) {
    // Memory that CUDA does not know is no error.
    attributes->device = -1;
    attributes->hostPointer = const_cast<void*>(pointer);
    return kSuccess;
  }
  constexpr unsigned kDevice = 2;
  attributes->type = static_cast<int>(type);
  cuPointerGetAttribute(&attributes->device, 9, addressOf(pointer));
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->hostPointer = type == kDevice ? nullptr : const_cast<void*>(pointer);
  return kSuccess;
}

SOFTGPU_API Result cudaIpcGetMemHandle(IpcHandle* handle, void* pointer) {
  return keep(cuIpcGetMemHandle(handle, addressOf(pointer)));
}

SOFTGPU_API Result cudaIpcOpenMemHandle(void** pointer, IpcHandle handle, unsigned flags) {
  useContext();
  DevicePointer address = 0;
  const Result result = cuIpcOpenMemHandle_v2(&address, handle, flags);
  *pointer = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  return keep(result);
}

SOFTGPU_API Result cudaIpcCloseMemHandle(void* pointer) {
  return keep(cuIpcCloseMemHandle(addressOf(pointer)));
}

SOFTGPU_API Result cudaMemcpy(void* to, const void* from, size_t size, int) {
  useContext();
  return keep(cuMemcpy(addressOf(to), addressOf(from), size));
}

SOFTGPU_API Result cudaMemcpyAsync(void* to, const void* from, size_t size, int, void* stream) {
  useContext();
  return keep(cuMemcpyAsync(addressOf(to), addressOf(from), size, stream));
}

Result softgpu::copyBatch(void* const* to, const void* const* from, const size_t* sizes, size_t count,
                          void* stream) {
  for (size_t i = 0; i < count; ++i) {
    const Result begun = cuMemcpyAsync(addressOf(to[i]), addressOf(from[i]), sizes[i], stream);
    if (begun != kSuccess) return begun;
  }
  return kSuccess;
}

SOFTGPU_API Result cudaMemset(void* to, int value, size_t size) {
  useContext();
  return keep(cuMemsetD8_v2(addressOf(to), static_cast<unsigned char>(value), size));
}

SOFTGPU_API Result cudaMemsetAsync(void* to, int value, size_t size, void* stream) {
  useContext();
  return keep(cuMemsetD8Async(addressOf(to), static_cast<unsigned char>(value), size, stream));
}

SOFTGPU_API Result cudaMemPoolCreate(void** pool, const void*) {
  *pool = handOut<int>(0);
  return kSuccess;
}

SOFTGPU_API Result cudaMemPoolDestroy(void* pool) {
  takeBack(static_cast<int*>(pool));
  return kSuccess;
}

SOFTGPU_API Result cudaMemPoolSetAttribute(void*, int, void*) {
  return kSuccess;
}
