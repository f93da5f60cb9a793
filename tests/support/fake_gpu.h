// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/mem/gpu/driver.h"
#include "weft/transport.h"

// A CUDA driver of two GPUs and a card, in this process, that know allocations by number only: nothing is
// behind an address. Both do as told and count what they are asked for. A process has one driver at a time,
// since its functions carry no state. Threads may look up, export and register; one allocates.
namespace weft::test {

class FakeGpu {
 public:
  FakeGpu();
  ~FakeGpu();
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  std::shared_ptr<const mem::gpu::Driver> driver();

  // Before driver():
  int gpus = 2;
  bool exports = true;  // it is of CUDA 11.7 or later
  int version = 13000;
  // At any time:
  bool dmabuf = true;  // attributes
  bool directRdma = true;
  bool coherent = false;
  bool ordered = false;
  bool inUse = true;    // the thread has a context
  int exportFails = 0;  // CUresult
  bool takesPcieFlag = true;
  bool memoryShort = false;  // allocations fail
  bool numbers = true;       // it has numbers for new allocations

  // An allocation at that address, of a new number. `type` 1: pinned host memory.
  void* allocateAt(uintptr_t address, size_t bytes, int gpu = 0, unsigned type = 2, bool managed = false);
  void free(void* address);

  struct Exported {
    uintptr_t address = 0;
    size_t bytes = 0;
    bool pcie = false;
  };
  std::vector<Exported> exported;
  size_t allocations() const { return memory.size(); }
  static int captureMode();  // of the thread, as the driver has it

  // The state that its functions work on.
  struct Piece {
    size_t bytes;
    int gpu;
    unsigned type;
    bool managed;
    unsigned long long number;
  };
  std::map<uintptr_t, Piece> memory;
  int pushed = 0;  // contexts
  std::mutex mutex;

 private:
  unsigned long long lastNumber_ = 0;
};

class FakeCard : public Device {
 public:
  FakeCard();
  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override;
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths&) override;

  DeviceInfo& change() { return info_; }
  int refusesDmabuf = 0;  // errno
  int refusesDirect = 0;  // a dma-buf through the second function
  int refusesAddress = 0;
  size_t longest = SIZE_MAX;              // bytes of one
  size_t most = SIZE_MAX;                 // registrations at a time; more fail as a full table does
  std::vector<MemoryDesc> registered;     // in all
  size_t live() const { return *live_; }  // any thread registers and deregisters

 private:
  DeviceInfo info_;
  std::shared_ptr<std::atomic<size_t>> live_ = std::make_shared<std::atomic<size_t>>(0);
  std::mutex mutex_;
};

}  // namespace weft::test
