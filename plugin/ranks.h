// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "plugin/objects.h"
#include "src/coll/mesh.h"

// The arguments with which NCCL connects several ranks at once, for collective offload and for one-sided
// operations. Any thread.
namespace weft::plugin {

// Checked, and with copies of the handles: they belong to NCCL and live only during the call. `operation` is
// for errors, `out` the place for the result. The listener must outlive the connecting.
Result<coll::MeshOptions> ranksOf(const char* operation, void* handles[], int ranks, int rank,
                                  HeldListener* listener, void* const* out);

}  // namespace weft::plugin
