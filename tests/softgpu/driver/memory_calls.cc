// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/softgpu/capture.h"
#include "tests/softgpu/device.h"
#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/memory.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"
#include "tests/softgpu/running.h"
#include "tests/softgpu/settings.h"
#include "tests/softgpu/stream.h"

using namespace softgpu;

namespace {

// What an IPC handle holds: where the allocation's file is found, and how to know that it still is that file.
struct IpcContent {
  char magic[8];
  int process;
  int fd;
  int device;
  uint64_t inode;
  uint64_t begin;  // of the allocation in the file
  uint64_t size;
  uint64_t offset;
  uint64_t base;  // where its owner has it
};
constexpr char kMagic[8] = "softgpu";

constexpr size_t kHostPage = 4096;

Result allocateInto(uintptr_t* address, size_t size, MemoryKind kind) {
  if (!hasContext()) return kInvalidContext;
  if (size == 0 || address == nullptr) return kInvalidValue;
  *address = allocate(size, kind, currentDevice());
  return *address == 0 ? kOutOfMemory : kSuccess;
}

Result allocateDevice(DevicePointer* address, size_t size) {
  uintptr_t found = 0;
  const Result result = allocateInto(&found, size, MemoryKind::device);
  if (result == kSuccess) *address = found;
  return result;
}

Result freeDevice(DevicePointer address) {
  if (address == 0) return kSuccess;
  const auto found = findMapping(static_cast<uintptr_t>(address));
  if (!found || found->base != address || found->kind != MemoryKind::device || found->opened > 0)
    return kInvalidValue;
  return unmapBacking(static_cast<uintptr_t>(address), false) ? kSuccess : kInvalidValue;
}

int memoryType(const Mapping& mapping) {
  return mapping.kind == MemoryKind::device ? 2 : 1;
}

Result pointerAttribute(void* value, int attribute, DevicePointer address, const Mapping& mapping) {
  switch (attribute) {
    case 1:
      *static_cast<void**>(value) = &contextOf(mapping.device);
      return kSuccess;
    case 2:
      *static_cast<unsigned*>(value) = static_cast<unsigned>(memoryType(mapping));
      return kSuccess;
    case 3:
      *static_cast<DevicePointer*>(value) = address;
      return kSuccess;
    case 4:
      if (mapping.kind == MemoryKind::device) return kInvalidValue;
      *static_cast<DevicePointer*>(value) = address;
      return kSuccess;
    case 6:
      *static_cast<unsigned*>(value) = 0;
      return kSuccess;
    case 7:
      *static_cast<uint64_t*>(value) = mapping.id;
      return kSuccess;
    case 8:
      *static_cast<unsigned*>(value) = 0;
      return kSuccess;
    case 9:
      *static_cast<int*>(value) = mapping.device;
      return kSuccess;
    case 10:
      *static_cast<unsigned char*>(value) = !mapping.virtualMemory && mapping.kind == MemoryKind::device;
      return kSuccess;
    case 11:
      *static_cast<DevicePointer*>(value) = mapping.base;
      return kSuccess;
    case 12:
      *static_cast<size_t*>(value) = mapping.size;
      return kSuccess;
    case 13:
      *static_cast<unsigned char*>(value) = 1;
      return kSuccess;
    case 14:
      *static_cast<uint64_t*>(value) = mapping.virtualMemory ? 1 : 0;
      return kSuccess;
    case 15:
      *static_cast<unsigned char*>(value) = settings().gdr;
      return kSuccess;
    case 16:
      *static_cast<unsigned*>(value) = 3;
      return kSuccess;
    default:
      return unsupported("cuPointerGetAttribute", std::to_string(attribute).c_str());
  }
}

}  // namespace

Result cuMemAlloc_v2(DevicePointer* address, size_t size) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  mayWaitForKernels();
  return allocateDevice(address, size);
}

// Freeing waits for the device, as cuMemFree does.
Result cuMemFree_v2(DevicePointer address) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  mayWaitForKernels();
  return freeDevice(address);
}

SOFTGPU_API Result cuMemAllocManaged(DevicePointer*, size_t, unsigned) {
  return unsupported("cuMemAllocManaged");
}

Result cuMemHostAlloc(void** address, size_t size, unsigned) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  mayWaitForKernels();
  uintptr_t found = 0;
  const Result result = allocateInto(&found, size, MemoryKind::pinned);
  if (result == kSuccess) *address = reinterpret_cast<void*>(found);
  return result;
}

SOFTGPU_API Result cuMemAllocHost_v2(void** address, size_t size) {
  return cuMemHostAlloc(address, size, 0);
}

Result cuMemFreeHost(void* address) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  mayWaitForKernels();
  const auto found = findMapping(address);
  if (!found || found->kind != MemoryKind::pinned) return kInvalidValue;
  return unmapBacking(reinterpret_cast<uintptr_t>(address), false) ? kSuccess : kInvalidValue;
}

Result cuMemHostRegister_v2(void* address, size_t size, unsigned) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  if (!hasContext()) return kInvalidContext;
  return registerHost(reinterpret_cast<uintptr_t>(address), size, currentDevice());
}

Result cuMemHostUnregister(void* address) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  return unregisterHost(reinterpret_cast<uintptr_t>(address));
}

Result cuMemHostGetDevicePointer_v2(DevicePointer* device, void* host, unsigned) {
  const auto found = findMapping(host);
  if (!found || found->kind == MemoryKind::device) return kInvalidValue;
  *device = reinterpret_cast<uintptr_t>(host);
  return kSuccess;
}

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (!hasContext()) return kInvalidContext;
  const size_t used = deviceBytes(currentDevice());
  *total = settings().memory;
  *free = used < *total ? *total - used : 0;
  return kSuccess;
}

Result cuMemGetAddressRange_v2(DevicePointer* base, size_t* size, DevicePointer address) {
  const auto found = findMapping(static_cast<uintptr_t>(address));
  if (!found) return kNotFound;
  if (base != nullptr) *base = found->base;
  if (size != nullptr) *size = found->size;
  return kSuccess;
}

// For cards in software the file of the allocation stands for the dma-buf. A GPU's own is of no use to a
// processor, which cannot map it: an event stands for that one.
Result cuMemGetHandleForAddressRange(void* handle, DevicePointer address, size_t size, int type,
                                     unsigned long long flags) {
  constexpr int kDmaBuf = 1;
  constexpr unsigned long long kPcie = 1;
  if (type != kDmaBuf || settings().dmabuf == Dmabuf::none)
    return unsupported("cuMemGetHandleForAddressRange", "SOFTGPU_DMABUF is 0");
  if ((flags & ~kPcie) != 0) return kInvalidValue;
  if (flags == kPcie && !settings().pcieMapping) return kNotSupported;
  const auto found = findMapping(static_cast<uintptr_t>(address));
  if (!found || !found->backing || size == 0 || size > found->base + found->size - address)
    return kInvalidValue;
  if (address % kHostPage != 0 || size % kHostPage != 0) return kInvalidValue;
  const int fd = settings().dmabuf == Dmabuf::card
                     ? openAt(*found->backing, found->offset + (address - found->base))
                     : eventfd(0, EFD_CLOEXEC);
  if (fd < 0) return kUnknown;
  *static_cast<int*>(handle) = fd;
  return kSuccess;
}

Result cuPointerGetAttribute(void* value, int attribute, DevicePointer address) {
  const auto found = findMapping(static_cast<uintptr_t>(address));
  return found ? pointerAttribute(value, attribute, address, *found) : kInvalidValue;
}

Result cuPointerSetAttribute(const void*, int attribute, DevicePointer address) {
  constexpr int kSyncMemops = 6;
  if (!findMapping(static_cast<uintptr_t>(address))) return kInvalidValue;
  return attribute == kSyncMemops ? kSuccess : kNotSupported;
}

Result cuPointerGetAttributes(unsigned count, int* attributes, void** values, DevicePointer address) {
  const auto found = findMapping(static_cast<uintptr_t>(address));
  if (!found) return kInvalidValue;
  for (unsigned i = 0; i < count; ++i) pointerAttribute(values[i], attributes[i], address, *found);
  return kSuccess;
}

Result cuIpcGetMemHandle(IpcHandle* handle, DevicePointer address) {
  const auto found = findMapping(static_cast<uintptr_t>(address));
  if (!found || !found->backing || found->virtualMemory || found->kind != MemoryKind::device ||
      found->opened > 0)
    return kInvalidValue;
  IpcContent content{};
  std::memcpy(content.magic, kMagic, sizeof kMagic);
  content.process = getpid();
  content.fd = found->backing->fd;
  content.device = found->device;
  content.inode = found->backing->inode;
  content.begin = found->backing->begin;
  content.size = found->size;
  content.offset = found->offset;
  content.base = found->base;
  static_assert(sizeof content <= sizeof handle->bytes);
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle->bytes, &content, sizeof content);
  return kSuccess;
}

Result cuIpcOpenMemHandle_v2(DevicePointer* address, IpcHandle handle, unsigned flags) {
  constexpr unsigned kLazyPeerAccess = 1;
  if (!hasContext()) return kInvalidContext;
  if (flags != kLazyPeerAccess) return kInvalidValue;
  mayWaitForKernels();
  IpcContent content{};
  std::memcpy(&content, handle.bytes, sizeof content);
  if (std::memcmp(content.magic, kMagic, sizeof kMagic) != 0) return kInvalidValue;
  if (content.process == getpid()) return kInvalidContext;
  if (!settings().peer) return kPeerUnsupported;
  const std::string path = "/proc/" + std::to_string(content.process) + "/fd/" + std::to_string(content.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    report("IPC handle: " + path + " cannot be opened: " + std::strerror(errno));
    return kInvalidValue;
  }
  const auto backing = adoptBacking(fd, content.begin, false, {});
  if (!backing || backing->inode != content.inode) return kInvalidValue;
  uintptr_t opened = 0;
  const Result result = openForeign(backing, content.size, content.offset, content.process,
                                    static_cast<uintptr_t>(content.base), &opened);
  if (result == kSuccess) *address = opened;
  return result;
}

Result cuIpcCloseMemHandle(DevicePointer address) {
  mayWaitForKernels();
  return closeForeign(static_cast<uintptr_t>(address));
}

// Pools are the device's memory: what is allocated is there at once, what is freed goes in the stream's
// order.
Result cuMemAllocAsync(DevicePointer* address, size_t size, void*) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  return allocateDevice(address, size);
}

Result cuMemFreeAsync(DevicePointer address, void* stream) {
  streamOf(stream).submit([address] { freeDevice(address); });
  return kSuccess;
}

SOFTGPU_API Result cuMemAllocFromPoolAsync(DevicePointer* address, size_t size, void*, void* stream) {
  return cuMemAllocAsync(address, size, stream);
}

SOFTGPU_API Result cuMemPoolCreate(void** pool, const void*) {
  *pool = handOut<int>(0);
  return kSuccess;
}

SOFTGPU_API Result cuMemPoolDestroy(void* pool) {
  takeBack(static_cast<int*>(pool));
  return kSuccess;
}

SOFTGPU_API Result cuMemPoolSetAttribute(void*, int, void*) {
  return kSuccess;
}
