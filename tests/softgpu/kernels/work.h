// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/softgpu/kernels/block.h"
#include "tests/softgpu/kernels/element.h"
#include "tests/softgpu/kernels/function.h"

namespace softgpu {

// One collective operation as NCCL's host code describes it to a channel (ncclDevWorkColl).
struct CollectiveWork {
  int firstChannel = 0, lastChannel = 0;
  int root = 0;
  const char* input = nullptr;  // the user's buffers, in view()
  char* output = nullptr;
  uint64_t argument = 0;           // of the reduction
  bool buffersRegistered = false;  // for the network
  bool buffersShared = false;      // for other GPUs of this node
  bool oneRankANode = false;

  // In elements: of the whole operation on this rank, and this channel's part of it.
  ptrdiff_t count = 0, offset = 0, partCount = 0, chunk = 0;

  // The network moves user buffers by itself; the kernel only keeps time.
  bool networkMoves() const { return oneRankANode && buffersRegistered; }
};

// Reads the descriptor for a channel.
CollectiveWork readWork(const Block& block, char* work, int protocol, size_t elementSize);

// Likewise for the network's own reductions: channels take turns at chunks, so offset and partCount are not
// set.
CollectiveWork readCollnetWork(const Block& block, char* work, size_t elementSize);

// What algorithms need. `protocol` is kLL or kSimple.
struct Play {
  Block& block;
  const CollectiveWork& work;
  const Reduction& reduction;
  int protocol = 0;
  const char* in(ptrdiff_t element) const {
    return work.input + element * static_cast<ptrdiff_t>(reduction.size());
  }
  char* out(ptrdiff_t element) const {
    return work.output + element * static_cast<ptrdiff_t>(reduction.size());
  }
};

void playRing(const Play& play, const DeviceFunction& function);
void playTree(const Play& play);
void playCollnetChain(const Play& play);
void playPat(const Play& play, const DeviceFunction& function);

// Sends and receives of one batch: `works` are ncclDevWorkP2p, each of which may be both.
void playSendReceive(Block& block, char* const* works, size_t count);

}  // namespace softgpu
