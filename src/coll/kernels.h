// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <span>

#include "weft/collective.h"

// Reductions on the processor. Element i of the result is ((in0 op in1) op in2) ... of the inputs' elements
// i, always in the order of the inputs, so that equal inputs give equal bits whatever the instruction set.
// Half types are computed in single precision and rounded once, at the end. Pure; any thread.
namespace weft::coll {

// At least one input. `out` may be one of the inputs and overlaps none of them otherwise. No alignment.
using Kernel = void (*)(const void* const* inputs, size_t count, void* out, size_t elements);

struct KernelTable {
  const char* name;
  Kernel of[kElementTypes][kReduceOps];  // null: there is no such reduction
};

// The fastest table that this processor can run; chosen once.
const KernelTable& kernels();

// All that this processor can run, the portable one first: for tests and benches.
std::span<const KernelTable* const> runnableKernels();

inline bool canReduce(ElementType type, ReduceOp op) {
  const auto t = static_cast<size_t>(type);
  const auto o = static_cast<size_t>(op);
  return t < kElementTypes && o < kReduceOps && kernels().of[t][o];
}

size_t elementBytes(ElementType type);
const char* nameOf(ElementType type);
const char* nameOf(ReduceOp op);

// `bytes` is a multiple of the element's size, and canReduce said yes.
inline void reduce(ElementType type, ReduceOp op, std::span<const void* const> inputs, void* out,
                   size_t bytes) {
  kernels().of[static_cast<size_t>(type)][static_cast<size_t>(op)](inputs.data(), inputs.size(), out,
                                                                   bytes / elementBytes(type));
}

// The tables, one file each. Which exist depends on the processor this is compiled for.
extern const KernelTable kPortableKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

}  // namespace weft::coll
