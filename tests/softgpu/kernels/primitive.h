// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tests/softgpu/kernels/block.h"
#include "tests/softgpu/kernels/element.h"

namespace softgpu {

// Numbers of protocols, as NCCL has them: places in bufferSizes and buffers.
constexpr int kLL = 0;
constexpr int kLL128 = 1;
constexpr int kSimple = 2;

// What one step of an algorithm does with `count` elements: takes them from all peers to receive from and
// from `source`, combines them, and puts the result to all peers to send to and to `target`. Addresses are in
// view() already, null: not taken part.
struct Operation {
  bool receive = false;
  bool send = false;
  const char* source = nullptr;
  char* target = nullptr;
  ptrdiff_t count = 0;    // negative counts as 0: the step is made all the same
  bool ownInput = false;  // the source is the user's input, which some reductions prepare
  bool last = false;      // the result is final, which some reductions finish
};

// With whom, and how. The same for all operations of one work.
struct Ends {
  std::vector<int> receiveFrom, sendTo;  // ranks
  int index = 0;                         // which connection of a peer
  int slicesPerChunk = 1, stepsPerSlice = 1;
  int stepBytes = 0;        // what a step holds, 0: the communicator's buffer size / 8
  bool registered = false;  // the network reads and writes the user's buffers itself
};

// NCCL's device protocols: FIFOs of eight steps a connection, shared with a proxy or with another kernel.
// Owned by one thread.
class Primitive {
 public:
  virtual ~Primitive() = default;
  virtual void run(const Operation& operation) = 0;
  // Stores how far the connections are, for the next work. Call once, at the end.
  virtual void finish() = 0;
};

std::unique_ptr<Primitive> makePrimitive(int protocol, Block& block, const Reduction& reduction,
                                         const Ends& ends);
std::unique_ptr<Primitive> makeSimple(Block& block, const Reduction& reduction, const Ends& ends);
std::unique_ptr<Primitive> makeLL(Block& block, const Reduction& reduction, const Ends& ends);

}  // namespace softgpu
