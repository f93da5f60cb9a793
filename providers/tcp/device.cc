// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/device.h"

#include "providers/tcp/memory.h"
#include "providers/tcp/queue.h"

namespace weft::tcp {

Result<std::unique_ptr<Memory>> TcpDevice::registerMemory(const MemoryDesc& desc) {
  return TcpMemory::create(regions_, desc);
}

Result<std::unique_ptr<Queue>> TcpDevice::openQueue(const QueueDepths& wanted) {
  return std::unique_ptr<Queue>(std::make_unique<TcpQueue>(*this, wanted));
}

}  // namespace weft::tcp
