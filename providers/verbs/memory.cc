// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/memory.h"

#include <cerrno>
#include <cstring>

#include "providers/verbs/words.h"
#include "src/base/bytes.h"
#include "src/base/log.h"

namespace weft::verbs {

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Relaxed ordering lets the card's writes pass each other on their way to memory, which the seam allows; a
// completion still comes after its data. Cards and kernels without it ignore the flag.
ibv_mr* registerRange(const Library& library, ibv_pd* pd, const MemoryDesc& desc) {
  if (desc.strictOrder || !library.regMrIova2) return library.regMr(pd, desc.address, desc.length, kAccess);
  return library.regMrIova2(pd, desc.address, desc.length, reinterpret_cast<uintptr_t>(desc.address),
                            kAccess | IBV_ACCESS_RELAXED_ORDERING);
}

}  // namespace

VerbsMemory::VerbsMemory(Handle<ibv_mr> region) : region_(std::move(region)) {
  const auto base = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(region_->addr));
  const uint64_t key = region_->rkey;
  std::memcpy(blob_.data(), &base, sizeof base);
  std::memcpy(blob_.data() + sizeof base, &key, sizeof key);
}

Result<std::unique_ptr<Memory>> VerbsMemory::create(const Library& library, ibv_pd* pd,
                                                    const MemoryDesc& desc) {
  if (!desc.address || desc.length == 0)
    return Error(Code::invalidArgument, "registering memory", "the range is empty");
  if (desc.kind != MemoryKind::host)
    return Error(Code::unavailable, "registering memory",
                 "only host memory is registered with verbs here; NCCL stages GPU buffers through it");
  errno = 0;
  ibv_mr* raw = registerRange(library, pd, desc);
  if (!raw) return verbsError("registering memory", format("%zu bytes", desc.length), errno ? errno : ENOMEM);
  return std::unique_ptr<Memory>(std::make_unique<VerbsMemory>(Handle<ibv_mr>(raw, library.deregMr)));
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
