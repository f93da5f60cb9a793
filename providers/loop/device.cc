// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/device.h"

#include <algorithm>
#include <cstring>

#include "providers/loop/queue.h"
#include "src/base/bytes.h"
#include "src/base/log.h"

namespace weft::loop {

namespace {

constexpr uint32_t kBlobMagic = 0x6d706c77;  // "wlpm"

}  // namespace

LoopMemory::LoopMemory(std::shared_ptr<Fabric> fabric, uint64_t key, const MemoryDesc& desc)
    : fabric_(std::move(fabric)), key_(key) {
  ByteWriter writer;
  writer.put(kBlobMagic).put(key).put(reinterpret_cast<uint64_t>(desc.address)).put(uint64_t{desc.length});
  std::memcpy(blob_.data(), writer.bytes().data(), blob_.size());
}

LoopMemory::~LoopMemory() {
  fabric_->regions().remove(key_);
}

Result<RemoteMemory> readBlob(std::span<const std::byte> blob) {
  ByteReader reader(blob);
  const auto magic = reader.get<uint32_t>();
  RemoteMemory remote;
  remote.key = reader.get<uint64_t>();
  remote.base = reader.get<uint64_t>();
  reader.get<uint64_t>();
  if (magic == kBlobMagic && reader.done()) return remote;
  return Error(Code::invalidArgument, "importing a peer's memory",
               format("%zu bytes that no loop device wrote", blob.size()));
}

LoopDevice::LoopDevice(DeviceInfo info, LoopOptions options, int rail)
    : fabric_(Fabric::shared()),
      info_(std::move(info)),
      options_(std::move(options)),
      rail_(rail),
      domain_(fabric_->nextId()) {}

Result<std::unique_ptr<Memory>> LoopDevice::registerMemory(const MemoryDesc& desc) {
  const char* operation = "registering memory with a loop device";
  if (!desc.address || desc.length == 0)
    return Error(Code::invalidArgument, operation, "an empty range, or none at all");
  if (desc.length > UINTPTR_MAX - reinterpret_cast<uintptr_t>(desc.address))
    return Error(Code::invalidArgument, operation, "a range that runs past the end of the address space");
  if (desc.kind != MemoryKind::host)
    return Error(Code::unavailable, operation, "only host memory can be reached in process");
  const uint64_t key = fabric_->regions().add(desc.address, desc.length, domain_);
  if (key == 0) return Error(Code::resources, operation, "a million ranges are registered already");
  return std::unique_ptr<Memory>(std::make_unique<LoopMemory>(fabric_, key, desc));
}

Result<std::unique_ptr<Queue>> LoopDevice::openQueue(const QueueDepths& wanted) {
  const QueueDepths granted{
      std::clamp(wanted.sends, 1u, std::max(options_.maxDepths.sends, 1u)),
      std::clamp(wanted.notifications, 1u, std::max(options_.maxDepths.notifications, 1u))};
  return std::unique_ptr<Queue>(std::make_unique<LoopQueue>(*this, granted));
}

}  // namespace weft::loop
