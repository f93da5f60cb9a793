// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <sys/types.h>

#include "tests/softgpu/api.h"
#include "tests/softgpu/pool.h"

// Device memory: shared memory with identity. Each allocation is in a file in memory, mapped where its user
// sees it and, in strict mode, a second time where only the driver and kernels look. Every function here may
// be called by any thread.
namespace softgpu {

// One allocation's bytes in a file. Lives as long as a mapping or a handle refers to it.
struct Backing {
  Backing(int descriptor, size_t bytes, const AllocationProperties& what);  // a file of its own
  Backing(PoolPlace taken, const AllocationProperties& what);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  const std::optional<PoolPlace> place;  // nothing: it has a file of its own
  const int fd;
  const size_t begin;  // in the file
  const size_t size;
  const AllocationProperties properties;
  ino_t inode = 0;
  void* handle = nullptr;  // what the virtual memory calls name it by, while somebody has that
};

enum class MemoryKind { device, pinned, registered };

struct Mapping {
  uintptr_t base = 0;
  size_t size = 0;
  MemoryKind kind = MemoryKind::device;
  int device = 0;                    // ordinal
  std::shared_ptr<Backing> backing;  // null for registered memory
  size_t offset = 0;                 // of base in the backing
  char* alias = nullptr;             // the same bytes for the driver; base itself unless strict
  uint64_t id = 0;                   // never used twice
  bool virtualMemory = false;        // made by cuMemMap
  // Made by cuIpcOpenMemHandle: how often it was opened, and where its owner has it. 0: it was not.
  unsigned opened = 0;
  int owner = 0;
  uintptr_t ownerBase = 0;
};

constexpr size_t kGranularity = size_t{2} << 20;

// New bytes, all zero, or null with a line on stderr: in the process's one file, and in a file of their own,
// which has their size, where a card in software may map what a dma-buf stands for.
std::shared_ptr<Backing> makeBacking(size_t size, const AllocationProperties& properties);
// Of another process, which takes `fd` over; null: that is none. `begin`: in the file. `promised`: the
// descriptor was exported, and stands for the memory though its owner frees it.
std::shared_ptr<Backing> adoptBacking(int fd, size_t begin, bool promised,
                                      const AllocationProperties& properties);
// A descriptor with a position of its own: what it stands for begins `offset` behind the backing's begin.
int openAt(const Backing& backing, size_t offset);

// Maps `backing` at `at`, or at an aligned address of the kernel's choice when `at` is 0. 0 when it cannot
// be.
uintptr_t mapBacking(const std::shared_ptr<Backing>& backing, size_t size, size_t offset, MemoryKind kind,
                     int device, uintptr_t at = 0);
// Forgets the mapping that begins at `base`. `keepReserved`: the addresses stay taken. False: there is none
// of that kind.
bool unmapBacking(uintptr_t base, bool keepReserved);

// Memory of process `owner`, which has it at `ownerBase`, opened by a handle of it for the current device;
// once more is the same address, until it was closed as often. `size` bytes of the backing.
Result openForeign(const std::shared_ptr<Backing>& backing, size_t size, size_t offset, int owner,
                   uintptr_t ownerBase, uintptr_t* address);
Result closeForeign(uintptr_t base);

// Device memory of `device`, or pinned host memory; the address, or 0.
uintptr_t allocate(size_t size, MemoryKind kind, int device);
Result registerHost(uintptr_t base, size_t size, int device);
Result unregisterHost(uintptr_t base);

// The mapping that holds `address`.
std::optional<Mapping> findMapping(uintptr_t address);
inline std::optional<Mapping> findMapping(const void* address) {
  return findMapping(reinterpret_cast<uintptr_t>(address));
}

// Where the driver and kernels find what the user calls `address`: itself, unless strict mode keeps the CPU
// from device memory.
void* view(const void* address);
template <typename T>
T* viewAs(const void* address) {
  return static_cast<T*>(view(address));
}

// A word of memory that the driver knows, read and written in one piece while nobody can take the mapping
// away. Nothing and false: there is no such memory.
std::optional<uint64_t> readWord(const void* address, bool wide);
bool writeWord(const void* address, bool wide, uint64_t value);

// Device memory in use, bytes.
size_t deviceBytes(int device);

}  // namespace softgpu
