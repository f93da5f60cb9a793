// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/device.h"

#include "providers/common/keyed_memory.h"
#include "providers/local/queue.h"
#include "providers/local/wire.h"

// Registration of host memory and GPU memory for lanes on this host.
namespace weft::local {

namespace {

// Memory that GPUs copy to and from. It is given back to its owner when no copy is under way with it.
class LocalMemory final : private SettledByFlights, public KeyedMemory {
 public:
  LocalMemory(std::shared_ptr<GpuFlights> flights, Milliseconds longest, std::shared_ptr<KeyTable> table,
              uint64_t key, const MemoryDesc& desc)
      : SettledByFlights(std::move(flights), key, longest),
        KeyedMemory(std::move(table), key, desc, kMemoryMagic) {}
};

}  // namespace

Result<std::unique_ptr<Memory>> LocalDevice::registerMemory(const MemoryDesc& desc) {
  if (!info_.cudaMemory)
    return KeyedMemory::create(
        table_, desc, kMemoryMagic,
        "lanes through shared memory carry host memory only; NCCL stages GPU buffers through it");
  TRY(const uint64_t key, KeyedMemory::keyFor(*table_, desc, nullptr));
  return std::unique_ptr<Memory>(
      std::make_unique<LocalMemory>(flights_, config_.closeTimeout, table_, key, desc));
}

Result<std::unique_ptr<Queue>> LocalDevice::openQueue(const QueueDepths& wanted) {
  return std::unique_ptr<Queue>(std::make_unique<LocalQueue>(*this, wanted));
}

}  // namespace weft::local
