// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// The driver's memory that two processes share: allocations of CUDA's virtual memory management, which a file
// descriptor names to another process. CUDA counts the references to an allocation, so memory that its owner
// frees stays as long as another process has it mapped. (CUDA C++ Programming Guide, "Virtual Memory
// Management".)
#include "src/base/log.h"
#include "src/mem/gpu/scopes.h"

namespace weft::mem::gpu {

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
  auto mapped = std::make_unique<Mapped>(*this, address, length);
  TRY(letReach(gpu, *mapped));
  return mapped;
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

Driver::Mapped::~Mapped() {
  const Functions& call = driver_.call_;
  const Relaxed relaxed(call);
  (void)call.cuMemUnmap(address_, length_);
  (void)call.cuMemAddressFree(address_, length_);
}

}  // namespace weft::mem::gpu
