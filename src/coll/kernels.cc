// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/kernels.h"

namespace weft::coll {

const KernelTable& kernels() {
  static const KernelTable& best = *runnableKernels().back();
  return best;
}

size_t elementBytes(ElementType type, ReduceOp op) {
  constexpr size_t kBytes[kElementTypes] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  const size_t bytes = kBytes[static_cast<size_t>(type)];
  return op == ReduceOp::minLoc || op == ReduceOp::maxLoc ? 2 * bytes : bytes;
}

const char* nameOf(ElementType type) {
  constexpr const char* kNames[kElementTypes] = {"int8",    "uint8",    "int16",   "uint16",
                                                 "int32",   "uint32",   "int64",   "uint64",
                                                 "float16", "bfloat16", "float32", "float64"};
  return static_cast<size_t>(type) < kElementTypes ? kNames[static_cast<size_t>(type)] : "unknown";
}

const char* nameOf(ReduceOp op) {
  constexpr const char* kNames[kReduceOps] = {"sum",  "prod", "min", "max",  "land",   "lor",
                                              "lxor", "band", "bor", "bxor", "minloc", "maxloc"};
  return static_cast<size_t>(op) < kReduceOps ? kNames[static_cast<size_t>(op)] : "unknown";
}

}  // namespace weft::coll
