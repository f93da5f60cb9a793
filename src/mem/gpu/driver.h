// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "src/base/fd.h"
#include "src/mem/gpu/abi.h"
#include "weft/result.h"

// The CUDA driver, found and opened at run time, and the calls that weft makes of it.
// Thread-safe. NCCL's proxy threads call it while a stream of the process is being captured into a graph:
// relaxed capture mode makes a call count as the thread's own, and copies have a stream of their own, for
// which no other stream waits. A call may also come after its context is gone; it returns an error then and
// does nothing else.
namespace weft::mem::gpu {

// The facts that decide how a GPU's memory gets to the network.
// The number of the driver (its ordinal), not NVML's or nvidia-smi's.
struct GpuFacts {
  int number = 0;    // the ordinal, from 0
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string pciAddress;
  int computeMajor = 0;
  int computeMinor = 0;
  bool directRdma = false;    // the driver offers its memory by address
  bool dmabuf = false;        // and by dma-buf
  bool coherent = false;      // reached past PCIe too (C2C)
  bool ordersWrites = false;  // a card's writes are visible to it without a flush
};

// The driver's knowledge of an address. A value; it is out of date as soon as the memory is freed.
struct Pointer {
  enum class Kind { unknown, host, device, managed };  // unknown: plain memory, or freed
  Kind kind = Kind::unknown;
  int gpu = -1;
  uint64_t buffer = 0;  // the allocation's number, never used twice in a process
  uintptr_t begin = 0;  // of the allocation, or of the segment of one that has several
  size_t length = 0;
};

class Driver {
 public:
  // The driver that this process has loaded, or the one at `path`. Null: there is no driver, and `why` gets
  // the reason in words; a host without CUDA is no error. The first answer for a path holds for the life of
  // the process, but "not loaded yet" is asked again.
  static std::shared_ptr<const Driver> ofProcess(const std::string& path, std::string* why = nullptr);
  // For tools, which look for GPUs by themselves: "" stands for libcuda.so.1. With `loadedOnly` nothing is
  // loaded that the process does not have already.
  static Result<std::shared_ptr<const Driver>> open(const std::string& path, bool loadedOnly);
  // For tests: any functions.
  static Result<std::shared_ptr<const Driver>> over(const Functions& functions);

  int version() const { return version_; }
  std::string versionText() const;  // "CUDA driver 13.0"
  int gpuCount() const { return count_; }
  GpuFacts facts(int gpu) const;

  // The GPU whose context is current on the calling thread. Without a current context: the first GPU that has
  // a primary context in this process, since asking the driver for more would make one. Null: this process
  // uses no GPU.
  std::optional<int> gpuInUse() const;

  Pointer lookUp(const void* address) const;

  bool exportsDmabuf() const { return call_.cuMemGetHandleForAddressRange != nullptr; }
  // A descriptor for [address, address + length); both ends lie on page boundaries. `pcie` asks for the
  // mapping over PCIe, where the GPU has another one too. Error::errnum is 0; the driver's own error name is
  // in the detail.
  Result<Fd> exportDmabuf(const void* address, size_t length, bool pcie) const;

  // Copies that are done when the call returns. They block the calling thread and take one stream per GPU.
  Status toGpu(int gpu, void* to, const void* from, size_t bytes) const;
  Status fromGpu(int gpu, void* to, const void* from, size_t bytes) const;

  Status within(int gpu, void* to, const void* from, size_t bytes) const;  // both ends are memory of GPUs

  class Copies;  // copies that go on by themselves (copies.h)
  // Host memory that the driver has pinned; an error when it has none left. The caller hands it to unpin().
  Result<void*> pinned(int gpu, size_t bytes) const;
  void unpin(int gpu, void* address) const;

  // The next calls are about memory that two processes share (driver_shared.cc). This one returns why the GPU
  // cannot share any; empty: it can.
  std::string whyNotShared(int gpu) const;
  // A range of addresses over an allocation, ours or another process's. The destructor takes the range away;
  // CUDA keeps the allocation alive at least that long.
  class Mapped {
   public:
    virtual ~Mapped() = default;
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    std::byte* data() const { return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address_)); }
    size_t length() const { return length_; }

   protected:
    Mapped(const Driver& driver, Address address, size_t length)
        : driver_(driver), address_(address), length_(length) {}
    const Driver& driver_;
    const Address address_;
    const size_t length_;
  };
  // `bytes` is a multiple of 2 MiB.
  Result<std::unique_ptr<Mapped>> allocateShareable(int gpu, size_t bytes) const;
  // A descriptor that names the allocation at `address` to another process. An error for memory that was not
  // allocated for sharing; memory of cudaMalloc never is.
  Result<Fd> exportShared(const void* address) const;
  // Maps the memory that such a descriptor names, so that this GPU reaches it. `length`: bytes of the whole
  // allocation.
  Result<std::unique_ptr<Mapped>> mapShared(int gpu, const Fd& shared, size_t length) const;

  // Lets one more GPU of this process reach what mapShared() mapped.
  Status letReach(int gpu, const Mapped& mapped) const;

  // CUDA IPC, for memory of cudaMalloc, which no descriptor names. Why there is none; empty: there is.
  std::string whyNoHandles() const;
  // The handle of the allocation at `address`, memory of that GPU. An error for all other memory.
  Result<IpcHandle> handleOf(int gpu, const void* address) const;
  // Opens another process's allocation, so that this GPU reaches it. `length`: bytes of the whole allocation
  // as its owner says; an error where it has fewer. CUDA refuses a handle of this process, and of memory that
  // is freed.
  Result<std::unique_ptr<Mapped>> openHandle(int gpu, const IpcHandle& handle, size_t length) const;

  // Memory for a trial, in the GPU's primary context, which the piece keeps. Freed with the piece.
  class Piece {
   public:
    Piece(const Driver& driver, int gpu, Address address) : driver_(driver), gpu_(gpu), address_(address) {}
    ~Piece();
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    void* data() const { return reinterpret_cast<void*>(static_cast<uintptr_t>(address_)); }

   private:
    const Driver& driver_;
    int gpu_;
    Address address_;
  };
  Result<std::unique_ptr<Piece>> allocate(int gpu, size_t bytes) const;

  explicit Driver(const Functions& functions) : call_(functions) {}
  ~Driver() = default;

 private:
  class Relaxed;
  class InContext;
  class Reserved;  // what mapAllocation() makes
  class Opened;    // what openHandle() makes

  // Initializes the driver and counts its GPUs; an error when it shows none.
  Status start();
  bool keepContext(int gpu) const;  // adds one reference; released by cuDevicePrimaryCtxRelease
  Error failed(const char* operation, const std::string& object, Result32 code) const;
  // The value of a device attribute (abi.h); 0 also when the driver does not know it.
  int attribute(int attribute, int gpu) const;
  // The stream of copy(), made at its first use. The GPU's context is current on the calling thread.
  Result<Stream> streamOf(int gpu) const;
  Result<std::unique_ptr<Mapped>> mapAllocation(int gpu, Allocation allocation, size_t length) const;
  // Puts `copy` on the GPU's stream and waits for it.
  template <class Copy>
  Status copy(int gpu, const char* what, size_t bytes, Copy copy) const;

  Functions call_;
  int version_ = 0;
  int count_ = 0;
  mutable std::mutex streamsMutex_;
  mutable std::map<int, Stream> streams_;  // never destroyed: the driver may be gone before us
};

}  // namespace weft::mem::gpu
