// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/common/keyed_memory.h"

#include <algorithm>
#include <cerrno>

#include "src/base/bytes.h"

// Registrations that are a key, and the check of works that use them.
namespace weft {

namespace {

int gpuOf(const MemoryDesc& desc) {
  return desc.kind == MemoryKind::host ? -1 : desc.gpu;
}

}  // namespace

KeyedMemory::KeyedMemory(std::shared_ptr<KeyTable> table, uint64_t key, const MemoryDesc& desc,
                         uint32_t magic)
    : table_(std::move(table)),
      key_(key),
      base_(reinterpret_cast<uintptr_t>(desc.address)),
      length_(desc.length),
      gpu_(gpuOf(desc)) {
  ByteWriter out;
  out.put(magic).put(key_);
  std::copy(out.bytes().begin(), out.bytes().end(), blob_.begin());
}

Result<uint64_t> KeyedMemory::keyFor(KeyTable& table, const MemoryDesc& desc, const char* hostOnly) {
  if (!desc.address || desc.length == 0)
    return Error(Code::invalidArgument, "registering memory", "the range is empty");
  const bool ofGpu = desc.kind != MemoryKind::host;
  if (ofGpu && (hostOnly || desc.gpu < 0))
    return Error(Code::unavailable, "registering memory",
                 hostOnly ? hostOnly : "it is not known whose GPU's memory it is");
  const uint64_t key = table.add(desc.address, desc.length, gpuOf(desc), desc.peers);
  if (key == 0)
    return Error(Code::resources, "registering memory", "a million regions are registered already");
  return key;
}

Result<std::unique_ptr<Memory>> KeyedMemory::create(std::shared_ptr<KeyTable> table, const MemoryDesc& desc,
                                                    uint32_t magic, const char* hostOnly) {
  TRY(const uint64_t key, keyFor(*table, desc, hostOnly));
  return std::unique_ptr<Memory>(std::make_unique<KeyedMemory>(std::move(table), key, desc, magic));
}

Result<RemoteMemory> decodeKeyedMemory(std::span<const std::byte> blob, uint32_t magic) {
  ByteReader in(blob);
  const auto begins = in.get<uint32_t>();
  RemoteMemory memory;
  memory.key = in.get<uint64_t>();
  if (begins == magic && in.done()) return memory;
  return Error(Code::invalidArgument, "importing memory", "the peer's memory description is damaged");
}

int faultOf(const Work& work, size_t most) {
  if (work.length > most) return EMSGSIZE;
  if (work.length == 0) return 0;
  if (!work.memory || !work.local) return EINVAL;
  return static_cast<const KeyedMemory*>(work.memory)->covers(work.local, work.length) ? 0 : EFAULT;
}

const char* faultWords(int error) {
  return error == EMSGSIZE ? "a work larger than a lane takes"
         : error == EINVAL ? "a work without a buffer or its registration"
                           : "a work whose buffer is not inside its registration";
}

}  // namespace weft
