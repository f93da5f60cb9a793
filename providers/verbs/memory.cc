// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/memory.h"

#include <cerrno>
#include <cstring>

#include "providers/common/gpu_refusal.h"
#include "providers/verbs/words.h"
#include "src/base/bytes.h"
#include "src/base/log.h"

// Registration of host memory and GPU memory, and its description for peers.
namespace weft::verbs {

namespace {

int accessOf(PeerAccess peers) {
  int access = IBV_ACCESS_LOCAL_WRITE;
  if (peers >= PeerAccess::write) access |= IBV_ACCESS_REMOTE_WRITE;
  if (peers >= PeerAccess::readAndWrite) access |= IBV_ACCESS_REMOTE_READ;
  return access;
}

constexpr int kDataDirect = 1 << 0;  // MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT of infiniband/mlx5dv.h

// Relaxed ordering lets the card's writes pass each other on their way to memory, which the seam allows; a
// completion still comes after its data (PCIe, "Relaxed Ordering"). Cards and kernels without it ignore the
// flag.
ibv_mr* registerRange(const Library& library, ibv_pd* pd, const MemoryDesc& desc) {
  const auto base = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(desc.address));
  const int access = accessOf(desc.peers);
  if (desc.kind == MemoryKind::dmabuf) {
    const int order = desc.strictOrder ? 0 : int{IBV_ACCESS_RELAXED_ORDERING};
    if (desc.direct)
      return library.dataDirect()->regDmabufMr(pd, desc.fdOffset, desc.length, base, desc.fd, access | order,
                                               kDataDirect);
    return library.regDmabufMr(pd, desc.fdOffset, desc.length, base, desc.fd, access | order);
  }
  if (desc.strictOrder || !library.regMrIova2) return library.regMr(pd, desc.address, desc.length, access);
  return library.regMrIova2(pd, desc.address, desc.length, base, access | IBV_ACCESS_RELAXED_ORDERING);
}

constexpr const char* kRegistering = "registering memory";

Error failure(const MemoryDesc& desc, int code) {
  if (desc.kind == MemoryKind::host) return verbsError(kRegistering, format("%zu bytes", desc.length), code);
  const bool limit = code == ENOMEM || code == EMFILE || code == EPERM || code == EACCES;
  return Error(
      limit ? Code::resources : Code::system, kRegistering,
      format("%zu bytes of GPU memory at %p%s", desc.length, desc.address, gpuRefusal(desc.kind, code)),
      code);
}

}  // namespace

VerbsMemory::VerbsMemory(Handle<ibv_mr> region, uint64_t base, bool host)
    : region_(std::move(region)), host_(host) {
  const uint64_t key = region_->rkey;
  std::memcpy(blob_.data(), &base, sizeof base);
  std::memcpy(blob_.data() + sizeof base, &key, sizeof key);
}

Result<std::unique_ptr<Memory>> VerbsMemory::create(const Library& library, ibv_pd* pd,
                                                    const MemoryDesc& desc) {
  if (!desc.address || desc.length == 0)
    return Error(Code::invalidArgument, kRegistering, "the range is empty");
  if (desc.kind == MemoryKind::dmabuf && !library.regDmabufMr)
    return Error(Code::unavailable, kRegistering,
                 "this libibverbs registers no dma-buf (rdma-core 34 and later do)");
  if (desc.direct && (!library.dataDirect || !library.dataDirect()))
    return Error(Code::unavailable, kRegistering,
                 "this libmlx5 has no data direct (rdma-core 54 and later do)");
  errno = 0;
  ibv_mr* raw = registerRange(library, pd, desc);
  if (!raw) return failure(desc, errno ? errno : ENOMEM);
  const auto base = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(desc.address));
  return std::unique_ptr<Memory>(std::make_unique<VerbsMemory>(Handle<ibv_mr>(raw, library.deregMr), base,
                                                               desc.kind == MemoryKind::host));
}

Result<RemoteMemory> decodeMemory(std::span<const std::byte> blob) {
  ByteReader in(blob);
  RemoteMemory memory;
  memory.base = in.get<uint64_t>();
  memory.key = in.get<uint64_t>();
  if (in.done() && memory.key <= UINT32_MAX) return memory;
  return Error(Code::invalidArgument, "importing memory", "the peer's memory description is damaged");
}

}  // namespace weft::verbs
