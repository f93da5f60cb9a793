// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/loop/queue.h"
#include "src/base/bytes.h"
#include "src/base/log.h"

namespace weft::loop {

namespace {

constexpr uint32_t kBlobMagic = 0x6d706c77;  // "wlpm"

std::shared_ptr<Card> cardOf(const LoopOptions& options, int rail) {
  const auto index = static_cast<size_t>(rail);
  return index < options.cards.size() ? options.cards[index] : nullptr;
}

}  // namespace

// A descriptor may begin at a position of its own: those of the software GPU do.
Result<Mapped> Mapped::of(const MemoryDesc& desc) {
  constexpr const char* kMapping = "mapping a dma-buf";
  Mapped mapped;
  const off_t position = std::max<off_t>(::lseek(desc.fd, 0, SEEK_CUR), 0);
  void* begin = ::mmap(nullptr, desc.length, PROT_READ | PROT_WRITE, MAP_SHARED, desc.fd,
                       position + static_cast<off_t>(desc.fdOffset));
  if (begin == MAP_FAILED)
    return Error(Code::system, kMapping,
                 format("descriptor %d, %zu bytes from %llu; the loop takes what a processor may map",
                        desc.fd, desc.length, static_cast<unsigned long long>(desc.fdOffset)),
                 errno);
  mapped.begin_ = begin;
  mapped.bytes_ = desc.length;
  struct stat file {};
  const auto end = static_cast<uint64_t>(position) + desc.fdOffset + desc.length;
  if (::fstat(desc.fd, &file) == 0 && static_cast<uint64_t>(file.st_size) >= end) return mapped;
  return Error(Code::invalidArgument, kMapping,
               format("descriptor %d ends before %llu bytes", desc.fd, static_cast<unsigned long long>(end)));
}

Mapped& Mapped::operator=(Mapped&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapped::~Mapped() {
  if (begin_) ::munmap(begin_, bytes_);
}

LoopMemory::LoopMemory(std::shared_ptr<KeyTable> regions, uint64_t key, const MemoryDesc& desc, Mapped mapped)
    : regions_(std::move(regions)),
      key_(key),
      owners_(reinterpret_cast<uintptr_t>(desc.address)),
      mapped_(std::move(mapped)) {
  ByteWriter writer;
  writer.put(kBlobMagic).put(key).put(reinterpret_cast<uint64_t>(desc.address)).put(uint64_t{desc.length});
  std::memcpy(blob_.data(), writer.bytes().data(), blob_.size());
}

LoopMemory::~LoopMemory() {
  regions_->remove(key_);
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
      card_(cardOf(options_, rail)),
      regions_(std::make_shared<KeyTable>()) {}

Result<std::unique_ptr<Memory>> LoopDevice::registerMemory(const MemoryDesc& desc) {
  const char* operation = "registering memory with a loop device";
  if (!desc.address || desc.length == 0)
    return Error(Code::invalidArgument, operation, "an empty range, or none at all");
  if (desc.length > UINTPTR_MAX - reinterpret_cast<uintptr_t>(desc.address))
    return Error(Code::invalidArgument, operation, "a range that runs past the end of the address space");
  if (desc.kind == MemoryKind::cuda)
    return Error(Code::unavailable, operation, "GPU memory by its address; a dma-buf can be mapped here");
  Mapped mapped;
  if (desc.kind == MemoryKind::dmabuf) {
    TRY(mapped, Mapped::of(desc));
  }
  void* const base = mapped.data() ? mapped.data() : desc.address;
  const uint64_t key = regions_->add(base, desc.length, -1, desc.peers);
  if (key == 0) return Error(Code::resources, operation, "a million ranges are registered already");
  return std::unique_ptr<Memory>(std::make_unique<LoopMemory>(regions_, key, desc, std::move(mapped)));
}

Result<std::unique_ptr<Queue>> LoopDevice::openQueue(const QueueDepths& wanted) {
  const QueueDepths granted{
      std::clamp(wanted.sends, 1u, std::max(options_.maxDepths.sends, 1u)),
      std::clamp(wanted.notifications, 1u, std::max(options_.maxDepths.notifications, 1u))};
  return std::unique_ptr<Queue>(std::make_unique<LoopQueue>(*this, granted));
}

}  // namespace weft::loop
