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

// The CUDA driver, found and opened at run time, and what weft asks of it. Thread-safe; every call may come
// from NCCL's proxy threads, while some stream of the process is being captured into a graph (a call counts
// as the thread's own, by relaxed capture mode, and copies have a stream of their own that no other waits
// for), and after the context it is about is gone: then it fails, and nothing else happens.
namespace weft::mem::gpu {

// The facts that decide how a GPU's memory gets to the network.
struct GpuFacts {
  int number = 0;    // the driver's
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string pciAddress;
  int computeMajor = 0;
  int computeMinor = 0;
  bool directRdma = false;    // the driver offers its memory by address
  bool dmabuf = false;        // and by dma-buf
  bool coherent = false;      // reached past PCIe too (C2C)
  bool ordersWrites = false;  // a card's writes are visible to it without a flush
};

// The driver's knowledge of an address.
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
  // The driver that this process has loaded, or the one at `path`. Null: there is none, and `why` says so in
  // words; a host without CUDA is no error. The first answer for a path holds for the process.
  static std::shared_ptr<const Driver> ofProcess(const std::string& path, std::string* why = nullptr);
  // For tools, that look for GPUs themselves: "" stands for libcuda.so.1.
  static Result<std::shared_ptr<const Driver>> open(const std::string& path, bool loadedOnly);
  // For tests: any functions.
  static Result<std::shared_ptr<const Driver>> over(const Functions& functions);

  int version() const { return version_; }
  std::string versionText() const;  // "CUDA driver 13.0"
  int gpuCount() const { return count_; }
  GpuFacts facts(int gpu) const;

  // The GPU whose context the calling thread has current; else one that has a context in this process: asking
  // for more would make one. Null: none.
  std::optional<int> gpuInUse() const;

  Pointer lookUp(const void* address) const;

  bool exportsDmabuf() const { return call_.cuMemGetHandleForAddressRange != nullptr; }
  // A descriptor for [address, address + length), which begins and ends with a page. `pcie`: the mapping over
  // PCIe, where there is another one. Error::errnum is 0; the driver's word is in the detail.
  Result<Fd> exportDmabuf(const void* address, size_t length, bool pcie) const;

  // Copies, done when they return.
  Status toGpu(int gpu, void* to, const void* from, size_t bytes) const;
  Status fromGpu(int gpu, void* to, const void* from, size_t bytes) const;

  Status within(int gpu, void* to, const void* from, size_t bytes) const;  // both of GPUs

  class Copies;  // those that go on by themselves (copies.h)
  // Host memory that copies into need not wait for; null bytes: there is none.
  Result<void*> pinned(int gpu, size_t bytes) const;
  void unpin(int gpu, void* address) const;

  // Memory that two processes share (driver_shared.cc). Empty: it can be had for this GPU; else why not.
  std::string whyNotShared(int gpu) const;
  // A range of addresses of its own over an allocation, ours or another process's, for as long as it lives;
  // the allocation lives at least as long.
  class Mapped {
   public:
    Mapped(const Driver& driver, Address address, size_t length)
        : driver_(driver), address_(address), length_(length) {}
    ~Mapped();
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    std::byte* data() const { return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address_)); }
    size_t length() const { return length_; }

   private:
    const Driver& driver_;
    Address address_;
    size_t length_;
  };
  // `bytes` is a multiple of 2 MiB.
  Result<std::unique_ptr<Mapped>> allocateShareable(int gpu, size_t bytes) const;
  // A descriptor that names the allocation at `address` to another process. An error for memory that was not
  // allocated for that, as cudaMalloc's is not.
  Result<Fd> exportShared(const void* address) const;
  // The memory that such a descriptor names, reachable by that GPU. `length`: of the whole allocation.
  Result<std::unique_ptr<Mapped>> mapShared(int gpu, const Fd& shared, size_t length) const;

  // Lets another GPU of this process reach it.
  Status letReach(int gpu, const Mapped& mapped) const;

  // Memory for a trial, in the GPU's primary context, which it keeps. Freed with it.
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

  Status start();
  bool keepContext(int gpu) const;  // until it is released once more
  Error failed(const char* operation, const std::string& object, Result32 code) const;
  int attribute(int attribute, int gpu) const;
  Result<Stream> streamOf(int gpu) const;
  Result<std::unique_ptr<Mapped>> mapAllocation(int gpu, Allocation allocation, size_t length) const;
  template <class Copy>
  Status copy(int gpu, const char* what, size_t bytes, Copy copy) const;

  Functions call_;
  int version_ = 0;
  int count_ = 0;
  mutable std::mutex streamsMutex_;
  mutable std::map<int, Stream> streams_;  // never destroyed: the driver may be gone before us
};

}  // namespace weft::mem::gpu
