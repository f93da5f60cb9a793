// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/memory.h"

#include <algorithm>

#include "src/base/bytes.h"

namespace weft::tcp {

namespace {

constexpr uint32_t kBlobMagic = 0x6d637477;  // "wtcm"

}  // namespace

TcpMemory::TcpMemory(std::shared_ptr<RegionTable> regions, uint64_t key, const MemoryDesc& desc)
    : regions_(std::move(regions)),
      key_(key),
      base_(reinterpret_cast<uintptr_t>(desc.address)),
      length_(desc.length) {
  ByteWriter out;
  out.put(kBlobMagic).put(key_);
  std::copy(out.bytes().begin(), out.bytes().end(), blob_.begin());
}

Result<std::unique_ptr<Memory>> TcpMemory::create(std::shared_ptr<RegionTable> regions,
                                                  const MemoryDesc& desc) {
  if (!desc.address || desc.length == 0)
    return Error(Code::invalidArgument, "registering memory", "the range is empty");
  if (desc.kind != MemoryKind::host)
    return Error(Code::unavailable, "registering memory",
                 "a socket reads and writes host memory only; NCCL stages GPU buffers through it");
  const uint64_t key = regions->add(desc.address, desc.length);
  if (key == 0)
    return Error(Code::resources, "registering memory", "a million regions are registered already");
  return std::unique_ptr<Memory>(std::make_unique<TcpMemory>(std::move(regions), key, desc));
}

Result<RemoteMemory> decodeMemory(std::span<const std::byte> blob) {
  ByteReader in(blob);
  const auto magic = in.get<uint32_t>();
  RemoteMemory memory;
  memory.key = in.get<uint64_t>();
  if (magic == kBlobMagic && in.done()) return memory;
  return Error(Code::invalidArgument, "importing memory", "the peer's memory description is damaged");
}

}  // namespace weft::tcp
