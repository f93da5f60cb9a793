// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/fold.h"

namespace weft::coll {

constinit const KernelTable kPortableKernels = makeTable<16, PortableHalf<16>>("portable");

}  // namespace weft::coll
