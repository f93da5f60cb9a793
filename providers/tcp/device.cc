// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/device.h"

#include "providers/common/keyed_memory.h"
#include "providers/tcp/queue.h"
#include "providers/tcp/wire.h"

namespace weft::tcp {

Result<std::unique_ptr<Memory>> TcpDevice::registerMemory(const MemoryDesc& desc) {
  return KeyedMemory::create(
      regions_, desc, kMemoryMagic,
      "a socket reads and writes host memory only; NCCL stages GPU buffers through it");
}

Result<std::unique_ptr<Queue>> TcpDevice::openQueue(const QueueDepths& wanted) {
  return std::unique_ptr<Queue>(std::make_unique<TcpQueue>(*this, wanted));
}

}  // namespace weft::tcp
