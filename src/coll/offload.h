// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/coll/mesh.h"

// From settings to a group: which backend, and that all ranks get it or none. Any thread.
namespace weft::coll {

enum class Offload : uint8_t { off, peers, tree, sharp };

Result<Offload> offloadOf(const Config& config);

// True for the reductions that NCCL may ask of every group of this job: a constant, as NCCL asks before there
// is a group.
bool offloadReduces(ElementType type, ReduceOp op);

// Blocks until all ranks have the group, or all have an error that names the rank which could not.
Result<std::unique_ptr<Group>> openGroup(MeshOptions options);

}  // namespace weft::coll
