// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/kernels.h"

// The choice of a table, and the names and sizes of types.
namespace weft::coll {

const KernelTable& kernels() {
  // The order of runnableKernels() is by speed, the fastest last.
  static const KernelTable& best = *runnableKernels().back();
  return best;
}

size_t elementBytes(ElementType type) {
  // By the numbers of ElementType, which are NCCL's.
  constexpr size_t kBytes[kElementTypes] = {1, 1, 0, 0, 4, 4, 8, 8, 2, 2, 4, 8};
  return kBytes[static_cast<size_t>(type)];
}

const char* nameOf(ElementType type) {
  constexpr const char* kNames[kElementTypes] = {"int8",    "uint8",    "unknown", "unknown",
                                                 "int32",   "uint32",   "int64",   "uint64",
                                                 "float16", "bfloat16", "float32", "float64"};
  return static_cast<size_t>(type) < kElementTypes ? kNames[static_cast<size_t>(type)] : "unknown";
}

const char* nameOf(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "prod", "min", "max"};
  if (op == ReduceOp::bor) return "bor";
  return static_cast<size_t>(op) < 4 ? kNames[static_cast<size_t>(op)] : "unknown";
}

}  // namespace weft::coll
