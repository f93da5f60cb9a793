// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/fold.h"

// The table for every processor.
namespace weft::coll {

// Vectors of 16 bytes: SSE2 and NEON both have them without a compiler flag.
constinit const KernelTable kPortableKernels = makeTable<16, PortableHalf<16>>("portable");

}  // namespace weft::coll
