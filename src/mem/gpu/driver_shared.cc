// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// The driver's memory that two processes share. Allocations of CUDA's virtual memory management are named to
// another process by a file descriptor. CUDA counts the references to such an allocation, so memory that its
// owner frees stays as long as another process has it mapped. (CUDA C++ Programming Guide, "Virtual Memory
// Management".) Memory of cudaMalloc is named by a handle, which is plain bytes (the same, "Interprocess
// Communication").
#include <cerrno>

#include "src/base/log.h"
#include "src/mem/gpu/scopes.h"

namespace weft::mem::gpu {

// Addresses that were reserved, with an allocation mapped there.
class Driver::Reserved final : public Mapped {
 public:
  Reserved(const Driver& driver, Address address, size_t length) : Mapped(driver, address, length) {}
  ~Reserved() override {
    const Functions& call = driver_.call_;
    const Relaxed relaxed(call);
    (void)call.cuMemUnmap(address_, length_);
    (void)call.cuMemAddressFree(address_, length_);
  }
};

// An allocation that was opened by its handle. CUDA counts: to open a handle once more gives the same
// address, and each Opened closes it once. The primary context is kept as long, since the address is one of
// it.
class Driver::Opened final : public Mapped {
 public:
  Opened(const Driver& driver, int gpu, Address address, size_t length)
      : Mapped(driver, address, length), gpu_(gpu) {}
  ~Opened() override {
    const Functions& call = driver_.call_;
    const Relaxed relaxed(call);
    {
      const InContext inside(call, gpu_);
      (void)call.cuIpcCloseMemHandle(address_);
    }
    int device = 0;
    if (call.cuDeviceGet(&device, gpu_) == kSuccess) (void)call.cuDevicePrimaryCtxRelease_v2(device);
  }

 private:
  const int gpu_;
};

std::string Driver::whyNotShared(int gpu) const {
  const bool all = call_.cuEventCreate && call_.cuEventDestroy_v2 && call_.cuEventRecord &&
                   call_.cuEventQuery && call_.cuMemHostAlloc && call_.cuMemFreeHost &&
                   call_.cuMemcpyDtoDAsync_v2 && call_.cuMemCreate && call_.cuMemRelease &&
                   call_.cuMemRetainAllocationHandle && call_.cuMemExportToShareableHandle &&
                   call_.cuMemImportFromShareableHandle && call_.cuMemAddressReserve &&
                   call_.cuMemAddressFree && call_.cuMemMap && call_.cuMemUnmap && call_.cuMemSetAccess;
  if (!all) return versionText() + " shares no memory between processes; CUDA 11 and later do";
  if (attribute(kVirtualMemory, gpu) == 0 || attribute(kDescriptorHandles, gpu) == 0)
    return format("GPU %d shares no memory between processes by descriptors", gpu);
  return {};
}

// Reserves addresses, maps the allocation there and gives the GPU access. From the Mapped on, every error
// path cleans up by its destructor.
Result<std::unique_ptr<Driver::Mapped>> Driver::mapAllocation(int gpu, Allocation allocation,
                                                              size_t length) const {
  const auto words = [&](const char* what) { return format("%s %zu bytes for GPU %d", what, length, gpu); };
  constexpr const char* kMapping = "mapping shared GPU memory";
  Address address = 0;
  Result32 code = call_.cuMemAddressReserve(&address, length, 0, 0, 0);
  if (code != kSuccess) return failed(kMapping, words("addresses of"), code);
  code = call_.cuMemMap(address, length, 0, allocation, 0);
  if (code != kSuccess) {
    (void)call_.cuMemAddressFree(address, length);
    return failed(kMapping, words("mapping"), code);
  }
  auto mapped = std::make_unique<Reserved>(*this, address, length);
  TRY(letReach(gpu, *mapped));
  return std::unique_ptr<Mapped>(std::move(mapped));
}

Status Driver::letReach(int gpu, const Mapped& mapped) const {
  const Relaxed relaxed(call_);
  Access access;
  access.location.gpu = gpu;
  const auto address = reinterpret_cast<uintptr_t>(mapped.data());
  const Result32 code = call_.cuMemSetAccess(address, mapped.length(), &access, 1);
  if (code == kSuccess) return {};
  return failed("mapping shared GPU memory", format("access to %zu bytes by GPU %d", mapped.length(), gpu),
                code);
}

Result<std::unique_ptr<Driver::Mapped>> Driver::allocateShareable(int gpu, size_t bytes) const {
  const Relaxed relaxed(call_);
  const InContext inside(call_, gpu);
  AllocationProperties properties;
  properties.location.gpu = gpu;
  Allocation allocation{};
  Result32 code = inside.code();
  if (code == kSuccess) code = call_.cuMemCreate(&allocation, bytes, &properties, 0);
  if (code != kSuccess)
    return failed("allocating GPU memory to share", format("%zu bytes on GPU %d", bytes, gpu), code);
  auto mapped = mapAllocation(gpu, allocation, bytes);
  (void)call_.cuMemRelease(allocation);  // the mapping holds a reference of its own
  return mapped;
}

Result<Fd> Driver::exportShared(const void* address) const {
  constexpr const char* kExporting = "exporting GPU memory to another process";
  const Relaxed relaxed(call_);
  const auto words = [&] { return format("the allocation at %p", address); };
  Allocation allocation{};
  Result32 code = call_.cuMemRetainAllocationHandle(&allocation, const_cast<void*>(address));
  if (code != kSuccess) return failed(kExporting, words(), code);
  int fd = -1;
  code = call_.cuMemExportToShareableHandle(&fd, allocation, kDescriptor, 0);
  (void)call_.cuMemRelease(allocation);
  if (code == kSuccess && fd >= 0) return Fd(fd);
  return failed(kExporting, words(), code);
}

// The handle of cuMemImportFromShareableHandle is the descriptor itself, passed as a pointer (cuda.h).
Result<std::unique_ptr<Driver::Mapped>> Driver::mapShared(int gpu, const Fd& shared, size_t length) const {
  const Relaxed relaxed(call_);
  const InContext inside(call_, gpu);
  Allocation allocation{};
  Result32 code = inside.code();
  if (code == kSuccess)
    code = call_.cuMemImportFromShareableHandle(
        &allocation, reinterpret_cast<void*>(static_cast<intptr_t>(shared.get())), kDescriptor);
  if (code != kSuccess)
    return failed("importing another process's GPU memory", format("%zu bytes for GPU %d", length, gpu),
                  code);
  auto mapped = mapAllocation(gpu, allocation, length);
  (void)call_.cuMemRelease(allocation);
  return mapped;
}

std::string Driver::whyNoHandles() const {
  if (call_.cuIpcGetMemHandle && call_.cuIpcOpenMemHandle_v2 && call_.cuIpcCloseMemHandle) return {};
  return versionText() + " has no handles for memory of cudaMalloc";
}

Result<IpcHandle> Driver::handleOf(int gpu, const void* address) const {
  const Relaxed relaxed(call_);
  const InContext inside(call_, gpu);
  IpcHandle handle;
  Result32 code = inside.code();
  if (code == kSuccess) code = call_.cuIpcGetMemHandle(&handle, reinterpret_cast<uintptr_t>(address));
  if (code == kSuccess) return handle;
  return failed("naming GPU memory to another process", format("the allocation at %p", address), code);
}

// The allocation may be smaller than its owner says. So the driver is asked, before anything relies on it.
Result<std::unique_ptr<Driver::Mapped>> Driver::openHandle(int gpu, const IpcHandle& handle,
                                                           size_t length) const {
  constexpr const char* kOpeningHandle = "opening another process's GPU memory";
  const auto words = [&] { return format("%zu bytes for GPU %d", length, gpu); };
  const Relaxed relaxed(call_);
  const InContext inside(call_, gpu);
  Address address = 0;
  Result32 code = inside.code();
  if (code == kSuccess) code = call_.cuIpcOpenMemHandle_v2(&address, handle, kReachPeersLazily);
  if (code == kSuccess && !keepContext(gpu)) {
    (void)call_.cuIpcCloseMemHandle(address);
    code = kDeinitialized;
  }
  if (code != kSuccess) return failed(kOpeningHandle, words(), code);
  auto opened = std::make_unique<Opened>(*this, gpu, address, length);
  const Pointer pointer = lookUp(opened->data());
  const auto begin = static_cast<uintptr_t>(address);
  if (pointer.kind != Pointer::Kind::device || begin < pointer.begin ||
      begin - pointer.begin > pointer.length || length > pointer.length - (begin - pointer.begin))
    return Error(Code::remote, kOpeningHandle,
                 words() + format(": the peer's allocation has %zu bytes only", pointer.length), ERANGE);
  return std::unique_ptr<Mapped>(std::move(opened));
}

}  // namespace weft::mem::gpu
