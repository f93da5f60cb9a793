// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <span>

#include "weft/collective.h"

// Reductions on the processor. Element i of the result is ((in0 op in1) op in2) ... of the elements i of the
// inputs, always in the order of the inputs: equal inputs give equal bits whatever the instruction set. Half
// types are computed in single precision and rounded once, at the end. Pure functions; any thread.
namespace weft::coll {

// `count` is at least 1. `out` may be one of the inputs, and must not overlap the inputs in any other way. No
// alignment is needed.
using Kernel = void (*)(const void* const* inputs, size_t count, void* out, size_t elements);

struct KernelTable {
  const char* name;
  Kernel of[kElementTypes][kReduceOps];  // null: there is no such reduction
};

// The fastest table that this processor can run; chosen once.
const KernelTable& kernels();

// All tables that this processor can run, the portable one first: for tests and benches.
std::span<const KernelTable* const> runnableKernels();

// Safe for any number that came from outside.
inline bool canReduce(ElementType type, ReduceOp op) {
  const auto t = static_cast<size_t>(type);
  const auto o = static_cast<size_t>(op);
  return t < kElementTypes && o < kReduceOps && kernels().of[t][o];
}

// Bytes of one element; 0: a type without a reduction.
size_t elementBytes(ElementType type);
const char* nameOf(ElementType type);
const char* nameOf(ReduceOp op);

// canReduce() said yes. False: `bytes` is no number of whole elements, and nothing was written.
inline bool reduce(ElementType type, ReduceOp op, std::span<const void* const> inputs, void* out,
                   size_t bytes) {
  if (bytes % elementBytes(type) != 0) return false;
  kernels().of[static_cast<size_t>(type)][static_cast<size_t>(op)](inputs.data(), inputs.size(), out,
                                                                   bytes / elementBytes(type));
  return true;
}

// The tables, one file each. The processor that weft is compiled for decides which of them exist.
extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kNeonKernels;

}  // namespace weft::coll
