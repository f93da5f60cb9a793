// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/softgpu/kernels/block.h"
#include "tests/softgpu/kernels/primitive.h"

namespace softgpu {

// One direction of one connection by NCCL's Simple protocol. Owned by one thread.
struct Lane {
  static constexpr int kOffsetMode = 1;  // the proxy says where in a shared buffer a step lies

  char* connection = nullptr;
  uint64_t step = 0;
  uint64_t* tail = nullptr;  // the sender counts here
  uint64_t* head = nullptr;  // the receiver counts here
  char* buffer = nullptr;
  char* fifo = nullptr;  // what the proxy is told and tells, null between kernels
  int stepSize = 0;
  bool userBuffers = false;

  char* entry() const { return fifo + (step % kSteps) * kFifoEntrySize; }
  int64_t& size() const { return *reinterpret_cast<int64_t*>(entry() + 8); }
  char* slot() const {
    if (fifo != nullptr && *reinterpret_cast<int*>(entry()) == kOffsetMode)
      return buffer + *reinterpret_cast<int*>(entry() + 4);
    return buffer + static_cast<ptrdiff_t>(step % kSteps) * stepSize;
  }
};

// Where the work before left it, rounded up to a multiple of `unit` steps.
inline Lane openLane(const Block& block, int peer, bool receive, int index, uint64_t unit) {
  const Layout& layout = block.layout();
  Lane lane;
  lane.connection = block.connection(peer, receive, index);
  lane.step = (field<uint64_t>(lane.connection, layout.step) + unit - 1) / unit * unit;
  lane.tail = viewAs<uint64_t>(field<void*>(lane.connection, layout.tail));
  lane.head = viewAs<uint64_t>(field<void*>(lane.connection, layout.head));
  lane.buffer = viewAs<char>(field<void*>(lane.connection, layout.buffers + kSimple * 8));
  lane.fifo = viewAs<char>(field<void*>(lane.connection, layout.fifo));
  lane.stepSize = field<int>(lane.connection, layout.stepSize);
  return lane;
}

}  // namespace softgpu
