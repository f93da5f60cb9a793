// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <limits>

#include "plugin/calls.h"
#include "plugin/guard.h"

// Registrations, checked for what NCCL may pass. The comm knows its registrations itself.
namespace weft::plugin {

namespace {

constexpr const char* kOperation = "registering memory";

Error unusable(const std::string& why) {
  return Error(Code::invalidArgument, kOperation, why);
}

// Clears the caller's handle as well, as every output is written in every case.
Status checkRange(const void* data, size_t bytes, void** mhandle) {
  if (!mhandle) return unusable("no place for the registration");
  *mhandle = nullptr;
  if (!data) return unusable("the buffer is null");
  if (bytes == 0) return unusable("the buffer has no bytes");
  if (bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max()))
    return unusable("the size is negative, or larger than any memory");
  return {};
}

// A comm refuses memory of a kind that its device does not take.
Status registerWith(void* pointer, const MemoryDesc& desc, void** mhandle) {
  HeldComm* held = commOf(pointer);
  if (!held) return unusable("the comm is null or not of this plugin");
  TRY(*mhandle, held->comm().registerMemory(desc));
  return {};
}

// NCCL passes NCCL_PTR_DMABUF only as an ability of a device, never as a type.
Result<MemoryKind> kindOf(int type) {
  if (type == NCCL_PTR_HOST) return MemoryKind::host;
  if (type == NCCL_PTR_CUDA) return MemoryKind::cuda;
  return unusable(format("memory type %d is neither host (1) nor CUDA (2)", type));
}

}  // namespace

// NCCL can live with a failure, as it falls back to buffers of its own; hence the level.
ncclResult_t registerRange(void* comm, void* data, size_t bytes, int type, void** mhandle) {
  return guard(
      "regMr",
      [&]() -> Status {
        TRY(checkRange(data, bytes, mhandle));
        TRY(const MemoryKind kind, kindOf(type));
        MemoryDesc desc;
        desc.address = data;
        desc.length = bytes;
        desc.kind = kind;
        return registerWith(comm, desc, mhandle);
      },
      LogLevel::info);
}

ncclResult_t regMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                         void** mhandle) {
  return guard(
      "regMrDmaBuf",
      [&]() -> Status {
        TRY(checkRange(data, size, mhandle));
        TRY(kindOf(type));
        if (fd < 0) return unusable(format("descriptor %d is not open", fd));
        MemoryDesc desc;
        desc.address = data;
        desc.length = size;
        desc.kind = MemoryKind::dmabuf;
        desc.fd = fd;
        desc.fdOffset = offset;
        return registerWith(comm, desc, mhandle);
      },
      LogLevel::info);
}

ncclResult_t deregMr(void* comm, void* mhandle) {
  return guard("deregMr", [&]() -> Status {
    if (!mhandle) return {};
    HeldComm* held = commOf(comm);
    if (!held)
      return Error(Code::invalidArgument, "deregistering memory", "the comm is null or not of this plugin");
    return held->comm().deregisterMemory(static_cast<core::MemoryHandle*>(mhandle));
  });
}

}  // namespace weft::plugin
