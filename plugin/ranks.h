// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "plugin/objects.h"
#include "src/coll/mesh.h"

// The arguments with which NCCL connects several ranks at once and registers memory on them, for collective
// offload and for one-sided operations. Any thread.
namespace weft::plugin {

// Checked, and with copies of the handles: they belong to NCCL and live only during the call. `operation` is
// for errors, `out` the place for the result. The listener must outlive the connecting.
Result<coll::MeshOptions> ranksOf(const char* operation, void* handles[], int ranks, int rank,
                                  HeldListener* listener, void* const* out);

// Memory as NCCL describes it to a comm of several ranks.
MemoryDesc rangeOf(void* data, size_t bytes, int type);
MemoryDesc dmaBufOf(void* data, size_t bytes, uint64_t offset, int fd);
// An error: it cannot be any memory, or not of that type.
Status checkMemory(const char* operation, const MemoryDesc& desc, int type);

}  // namespace weft::plugin
