// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/memory.h"

#include <cstring>

#include "src/base/bytes.h"

// The description of memory for peers: base and key.
namespace weft::ofi {

OfiMemory::OfiMemory(Registry& registry, const Registry::Entry& entry) : registry_(registry), entry_(entry) {
  std::memcpy(blob_.data(), &entry.base, sizeof entry.base);
  std::memcpy(blob_.data() + sizeof entry.base, &entry.key, sizeof entry.key);
}

Result<std::unique_ptr<Memory>> OfiMemory::create(Registry& registry, const DeviceInfo& device,
                                                  const MemoryDesc& desc) {
  if (!desc.address || desc.length == 0)
    return Error(Code::invalidArgument, "registering memory", "the range is empty");
  if (desc.kind != MemoryKind::host && !device.withoutGpu.empty())
    return Error(Code::unavailable, "registering memory",
                 device.name + " takes no GPU memory: " + device.withoutGpu +
                     "; NCCL stages GPU buffers through host memory");
  TRY(const Registry::Entry entry, registry.add(desc));
  return std::unique_ptr<Memory>(std::make_unique<OfiMemory>(registry, entry));
}

Result<RemoteMemory> decodeMemory(std::span<const std::byte> blob) {
  ByteReader in(blob);
  RemoteMemory memory;
  memory.base = in.get<uint64_t>();
  memory.key = in.get<uint64_t>();
  if (in.done()) return memory;
  return Error(Code::invalidArgument, "importing memory", "the peer's memory description is damaged");
}

}  // namespace weft::ofi
