// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/memory.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "tests/softgpu/device.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"
#include "tests/softgpu/settings.h"
#include "tests/softgpu/strict.h"

namespace softgpu {

namespace {

// All mappings by their first address. Never destroyed: exit handlers still call.
struct Table {
  std::shared_mutex lock;
  std::map<uintptr_t, Mapping> mappings;
  uint64_t lastId = 0;
};

Table& table() {
  static auto* const kTable = &immortal<Table>();
  return *kTable;
}

size_t roundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Address space of `size` bytes that begins at a multiple of the granularity.
uintptr_t reserveAligned(size_t size) {
  void* const raw =
      mmap(nullptr, size + kGranularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = roundUp(begin, kGranularity);
  if (aligned > begin) munmap(raw, aligned - begin);
  const size_t behind = begin + kGranularity - aligned;
  if (behind > 0) munmap(reinterpret_cast<void*>(aligned + size), behind);
  return aligned;
}

bool hidden(MemoryKind kind) {
  return kind == MemoryKind::device && settings().strict;
}

const Mapping* findLocked(Table& all, uintptr_t address) {
  auto next = all.mappings.upper_bound(address);
  if (next == all.mappings.begin()) return nullptr;
  const Mapping& found = std::prev(next)->second;
  return address < found.base + found.size ? &found : nullptr;
}

}  // namespace

Backing::Backing(int descriptor, size_t bytes, const AllocationProperties& what)
    : fd(descriptor), begin(0), size(bytes), properties(what) {
  struct stat status {};
  if (fstat(fd, &status) == 0) inode = status.st_ino;
}

Backing::Backing(PoolPlace taken, const AllocationProperties& what)
    : place(std::move(taken)), fd(place->fd()), begin(place->begin()), size(place->size()), properties(what) {
  struct stat status {};
  if (fstat(fd, &status) == 0) inode = status.st_ino;
}

Backing::~Backing() {
  if (!place) close(fd);
}

std::shared_ptr<Backing> makeBacking(size_t size, const AllocationProperties& properties) {
  if (settings().dmabuf != Dmabuf::card) {
    auto place = takePlace(size);
    return place ? std::make_shared<Backing>(std::move(*place), properties) : nullptr;
  }
  const int fd = memfd_create("softgpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) {
    report(std::string("no memory for an allocation of ") + std::to_string(size) +
           " bytes: " + std::strerror(errno));
    if (fd >= 0) close(fd);
    return nullptr;
  }
  return std::make_shared<Backing>(fd, size, properties);
}

std::shared_ptr<Backing> adoptBacking(int fd, size_t begin, bool promised,
                                      const AllocationProperties& properties) {
  if (isPool(fd)) {
    auto place = adoptPlace(fd, begin, promised);
    return place ? std::make_shared<Backing>(std::move(*place), properties) : nullptr;
  }
  struct stat status {};
  const bool alone = settings().dmabuf == Dmabuf::card;  // allocations have files of their own
  if (alone && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
    return std::make_shared<Backing>(fd, static_cast<size_t>(status.st_size), properties);
  close(fd);
  return nullptr;
}

int openAt(const Backing& backing, size_t offset) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", backing.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd >= 0) lseek(fd, static_cast<off_t>(backing.begin + offset), SEEK_SET);
  return fd;
}

uintptr_t mapBacking(const std::shared_ptr<Backing>& backing, size_t size, size_t offset, MemoryKind kind,
                     int device, uintptr_t at) {
  const uintptr_t base = at != 0 ? at : reserveAligned(roundUp(size, kGranularity));
  if (base == 0) return 0;
  const auto fileOffset = static_cast<off_t>(backing->begin + offset);
  const int protection = hidden(kind) ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* const seen =
      mmap(reinterpret_cast<void*>(base), size, protection, MAP_SHARED | MAP_FIXED, backing->fd, fileOffset);
  if (seen == MAP_FAILED) return 0;
  void* alias = seen;
  if (hidden(kind)) {
    watchForAccess();
    alias = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, backing->fd, fileOffset);
    if (alias == MAP_FAILED) return 0;
  }
  Mapping mapping;
  mapping.base = base;
  mapping.size = size;
  mapping.kind = kind;
  mapping.device = device;
  mapping.backing = backing;
  mapping.offset = offset;
  mapping.alias = static_cast<char*>(alias);
  mapping.virtualMemory = at != 0;
  Table& all = table();
  const std::unique_lock guard(all.lock);
  mapping.id = ++all.lastId;
  all.mappings[base] = mapping;
  return base;
}

bool unmapBacking(uintptr_t base, bool keepReserved) {
  Mapping gone;
  {
    Table& all = table();
    const std::unique_lock guard(all.lock);
    const auto found = all.mappings.find(base);
    if (found == all.mappings.end() || !found->second.backing || found->second.virtualMemory != keepReserved)
      return false;
    gone = found->second;
    all.mappings.erase(found);
  }
  if (gone.alias != reinterpret_cast<char*>(base)) munmap(gone.alias, gone.size);
  if (keepReserved) {
    mmap(reinterpret_cast<void*>(base), gone.size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else {
    munmap(reinterpret_cast<void*>(base), roundUp(gone.size, kGranularity));
  }
  return true;
}

// What the owner has freed and somebody still has open is in the way of what the owner allocated at the same
// addresses since: a driver says so.
Result openForeign(const std::shared_ptr<Backing>& backing, size_t size, size_t offset, int owner,
                   uintptr_t ownerBase, uintptr_t* address) {
  Table& all = table();
  static auto* const kOpening = &immortal<std::mutex>();
  const std::lock_guard opening(*kOpening);
  {
    const std::unique_lock guard(all.lock);
    for (auto& [base, mapping] : all.mappings) {
      const bool apart =
          ownerBase >= mapping.ownerBase + mapping.size || mapping.ownerBase >= ownerBase + size;
      if (mapping.opened == 0 || mapping.owner != owner || apart) continue;
      if (mapping.backing->inode != backing->inode || mapping.backing->begin != backing->begin)
        return kAlreadyMapped;
      ++mapping.opened;
      *address = base;
      return kSuccess;
    }
  }
  *address = mapBacking(backing, size, offset, MemoryKind::device, currentDevice());
  if (*address == 0) return kOutOfMemory;
  const std::unique_lock guard(all.lock);
  Mapping& fresh = all.mappings[*address];
  fresh.opened = 1;
  fresh.owner = owner;
  fresh.ownerBase = ownerBase;
  return kSuccess;
}

Result closeForeign(uintptr_t base) {
  {
    Table& all = table();
    const std::unique_lock guard(all.lock);
    const auto found = all.mappings.find(base);
    if (found == all.mappings.end() || found->second.opened == 0) return kInvalidValue;
    if (--found->second.opened > 0) return kSuccess;
  }
  return unmapBacking(base, false) ? kSuccess : kInvalidValue;
}

uintptr_t allocate(size_t size, MemoryKind kind, int device) {
  if (size == 0) return 0;
  if (kind == MemoryKind::device && deviceBytes(device) + size > settings().memory) return 0;
  AllocationProperties properties{};
  properties.type = 1;
  properties.location = {kind == MemoryKind::device ? kLocationDevice : 2, device};
  const size_t whole = roundUp(size, 4096);
  const auto backing = makeBacking(whole, properties);
  return backing ? mapBacking(backing, whole, 0, kind, device) : 0;
}

Result registerHost(uintptr_t base, size_t size, int device) {
  if (base == 0 || size == 0) return kInvalidValue;
  Table& all = table();
  const std::unique_lock guard(all.lock);
  if (findLocked(all, base) != nullptr || findLocked(all, base + size - 1) != nullptr)
    return kAlreadyRegistered;
  Mapping mapping;
  mapping.base = base;
  mapping.size = size;
  mapping.kind = MemoryKind::registered;
  mapping.device = device;
  mapping.alias = reinterpret_cast<char*>(base);
  mapping.id = ++all.lastId;
  all.mappings[base] = mapping;
  return kSuccess;
}

Result unregisterHost(uintptr_t base) {
  Table& all = table();
  const std::unique_lock guard(all.lock);
  const auto found = all.mappings.find(base);
  if (found == all.mappings.end() || found->second.kind != MemoryKind::registered) return kNotRegistered;
  all.mappings.erase(found);
  return kSuccess;
}

std::optional<Mapping> findMapping(uintptr_t address) {
  Table& all = table();
  const std::shared_lock guard(all.lock);
  const Mapping* const found = findLocked(all, address);
  return found == nullptr ? std::nullopt : std::make_optional(*found);
}

void* view(const void* address) {
  if (!settings().strict) return const_cast<void*>(address);
  Table& all = table();
  const std::shared_lock guard(all.lock);
  const auto where = reinterpret_cast<uintptr_t>(address);
  const Mapping* const found = findLocked(all, where);
  return found == nullptr ? const_cast<void*>(address) : found->alias + (where - found->base);
}

namespace {

// The word as the driver sees it; null: no such memory. The caller holds the table's lock.
void* wordOf(Table& all, const void* address) {
  const auto where = reinterpret_cast<uintptr_t>(address);
  const Mapping* const found = findLocked(all, where);
  if (found == nullptr) return nullptr;
  return found->alias == nullptr ? const_cast<void*>(address) : found->alias + (where - found->base);
}

template <typename Word>
std::atomic_ref<Word> shared(void* at) {
  return std::atomic_ref<Word>(*static_cast<Word*>(at));
}

}  // namespace

std::optional<uint64_t> readWord(const void* address, bool wide) {
  Table& all = table();
  const std::shared_lock guard(all.lock);
  void* const at = wordOf(all, address);
  if (at == nullptr) return std::nullopt;
  return wide ? shared<uint64_t>(at).load(std::memory_order_acquire)
              : shared<uint32_t>(at).load(std::memory_order_acquire);
}

bool writeWord(const void* address, bool wide, uint64_t value) {
  Table& all = table();
  const std::shared_lock guard(all.lock);
  void* const at = wordOf(all, address);
  if (at == nullptr) return false;
  if (wide)
    shared<uint64_t>(at).store(value, std::memory_order_release);
  else
    shared<uint32_t>(at).store(static_cast<uint32_t>(value), std::memory_order_release);
  return true;
}

size_t deviceBytes(int device) {
  Table& all = table();
  const std::shared_lock guard(all.lock);
  size_t sum = 0;
  for (const auto& [base, mapping] : all.mappings) {
    if (mapping.kind == MemoryKind::device && mapping.device == device && mapping.opened == 0)
      sum += mapping.size;
  }
  return sum;
}

}  // namespace softgpu
