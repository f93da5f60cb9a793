// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/softgpu/device.h"
#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/memory.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"
#include "tests/softgpu/running.h"
#include "tests/softgpu/settings.h"

using namespace softgpu;

namespace {

// What a CUmemGenericAllocationHandle is: one an allocation and process, with a count of those who have it.
// Mappings keep the memory itself.
struct Handle {
  std::shared_ptr<Backing> backing;
  unsigned users = 0;
};

std::mutex handlesLock;

Handle* takeHandle(const std::shared_ptr<Backing>& backing) {
  const std::lock_guard guard(handlesLock);
  if (backing->handle == nullptr) backing->handle = handOut<Handle>(Handle{backing});
  auto* const handle = static_cast<Handle*>(backing->handle);
  ++handle->users;
  return handle;
}

constexpr int kPosixDescriptor = 1;
constexpr int kFabric = 8;

MemoryKind kindOf(const Backing& backing) {
  return backing.properties.location.type == kLocationDevice ? MemoryKind::device : MemoryKind::pinned;
}

}  // namespace

SOFTGPU_API Result cuMemGetAllocationGranularity(size_t* granularity, const AllocationProperties*, int) {
  *granularity = kGranularity;
  return kSuccess;
}

Result cuMemAddressReserve(DevicePointer* address, size_t size, size_t alignment, DevicePointer,
                           unsigned long long) {
  if (size == 0 || size % kGranularity != 0 || (alignment & (alignment - 1)) != 0) return kInvalidValue;
  const size_t unit = alignment > kGranularity ? alignment : kGranularity;
  void* const raw = mmap(nullptr, size + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return kOutOfMemory;
  const auto begin = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (begin + unit - 1) / unit * unit;
  if (aligned > begin) munmap(raw, aligned - begin);
  if (begin + unit > aligned) munmap(reinterpret_cast<void*>(aligned + size), begin + unit - aligned);
  *address = aligned;
  return kSuccess;
}

Result cuMemAddressFree(DevicePointer address, size_t size) {
  if (address == 0 || size == 0 || findMapping(static_cast<uintptr_t>(address))) return kInvalidValue;
  munmap(reinterpret_cast<void*>(static_cast<uintptr_t>(address)), size);
  return kSuccess;
}

Result cuMemCreate(void** handle, size_t size, const AllocationProperties* properties, unsigned long long) {
  if (size == 0 || size % kGranularity != 0) return kInvalidValue;
  if (properties->location.type == kLocationDevice && !isDevice(properties->location.id))
    return kInvalidDevice;
  if ((properties->handleTypes & kFabric) != 0) return kNotPermitted;  // as where no IMEX channel is
  if ((properties->handleTypes & ~kPosixDescriptor) != 0)
    return unsupported("cuMemCreate", "Windows handles");
  const auto backing = makeBacking(size, *properties);
  if (!backing) return kOutOfMemory;
  *handle = takeHandle(backing);
  return kSuccess;
}

Result cuMemRelease(void* handle) {
  if (handle == nullptr) return kInvalidValue;
  auto* const gone = static_cast<Handle*>(handle);
  const std::lock_guard guard(handlesLock);
  if (--gone->users > 0) return kSuccess;
  gone->backing->handle = nullptr;
  takeBack(gone);
  return kSuccess;
}

Result cuMemMap(DevicePointer address, size_t size, size_t offset, void* handle, unsigned long long) {
  if (handle == nullptr || address == 0) return kInvalidValue;
  const auto& backing = static_cast<Handle*>(handle)->backing;
  if (offset + size > backing->size) return kInvalidValue;
  mayWaitForKernels();
  const int device =
      kindOf(*backing) == MemoryKind::device ? backing->properties.location.id : currentDevice();
  return mapBacking(backing, size, offset, kindOf(*backing), device, static_cast<uintptr_t>(address)) == 0
             ? kOutOfMemory
             : kSuccess;
}

// Another process's memory counts as another GPU's.
SOFTGPU_API Result cuMemSetAccess(DevicePointer address, size_t, const void*, size_t) {
  mayWaitForKernels();
  const auto found = findMapping(static_cast<uintptr_t>(address));
  if (!found) return kInvalidValue;
  const auto& place = found->backing->place;
  return settings().peer || !place || isOfThisProcess(*place) ? kSuccess : kPeerUnsupported;
}

Result cuMemUnmap(DevicePointer address, size_t) {
  mayWaitForKernels();
  return unmapBacking(static_cast<uintptr_t>(address), true) ? kSuccess : kInvalidValue;
}

SOFTGPU_API Result cuMemRetainAllocationHandle(void** handle, void* address) {
  const auto found = findMapping(address);
  if (!found || !found->virtualMemory) return kInvalidValue;
  *handle = takeHandle(found->backing);
  return kSuccess;
}

SOFTGPU_API Result cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties, void* handle) {
  if (handle == nullptr) return kInvalidValue;
  *properties = static_cast<Handle*>(handle)->backing->properties;
  return kSuccess;
}

Result cuMemExportToShareableHandle(void* shared, void* handle, int type, unsigned long long) {
  if (type != kPosixDescriptor)
    return unsupported("cuMemExportToShareableHandle", "handles other than file descriptors");
  const Backing& backing = *static_cast<Handle*>(handle)->backing;
  if ((backing.properties.handleTypes & kPosixDescriptor) == 0) return kInvalidValue;
  const int fd = openAt(backing, 0);
  if (fd < 0) return kUnknown;
  if (backing.place) backing.place->promise();
  *static_cast<int*>(shared) = fd;
  return kSuccess;
}

// The descriptor stays the caller's.
Result cuMemImportFromShareableHandle(void** handle, void* shared, int type) {
  if (type != kPosixDescriptor)
    return unsupported("cuMemImportFromShareableHandle", "handles other than file descriptors");
  const int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shared)), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return kInvalidValue;
  AllocationProperties properties{};
  properties.type = 1;
  properties.handleTypes = kPosixDescriptor;
  properties.location = {kLocationDevice, currentDevice()};
  const off_t begin = lseek(fd, 0, SEEK_CUR);
  const auto backing = adoptBacking(fd, static_cast<size_t>(begin < 0 ? 0 : begin), true, properties);
  if (!backing) return kInvalidValue;
  *handle = takeHandle(backing);
  return kSuccess;
}
