// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/device.h"

#include "providers/common/keyed_memory.h"
#include "providers/local/queue.h"
#include "providers/local/wire.h"

namespace weft::local {

Result<std::unique_ptr<Memory>> LocalDevice::registerMemory(const MemoryDesc& desc) {
  return KeyedMemory::create(
      table_, desc, kMemoryMagic,
      info_.cudaMemory
          ? nullptr
          : "lanes through shared memory carry host memory only; NCCL stages GPU buffers through it");
}

Result<std::unique_ptr<Queue>> LocalDevice::openQueue(const QueueDepths& wanted) {
  return std::unique_ptr<Queue>(std::make_unique<LocalQueue>(*this, wanted));
}

}  // namespace weft::local
