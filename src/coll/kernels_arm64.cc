// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/kernels.h"

// The tables of an arm64 processor.
namespace weft::coll {

// Each has NEON.
std::span<const KernelTable* const> runnableKernels() {
  static constexpr const KernelTable* kTables[] = {&kPortableKernels, &kNeonKernels};
  return kTables;
}

}  // namespace weft::coll
