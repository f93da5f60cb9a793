// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/kernels.h"

// The tables of processors other than x86 and arm64.
namespace weft::coll {

// There the portable table is the only one.
std::span<const KernelTable* const> runnableKernels() {
  static constexpr const KernelTable* kOnly = &kPortableKernels;
  return std::span(&kOnly, 1);
}

}  // namespace weft::coll
