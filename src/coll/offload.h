// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/coll/mesh.h"

// From settings to a group: which backend, and that all ranks get it or none. Any thread.
namespace weft::coll {

enum class Backend : uint8_t { off, peers, tree, sharp };

Result<Backend> backendOf(const Config& config);

// What NCCL may ask of every group of this job: constant, as NCCL asks before there is one.
bool offloadReduces(ElementType type, ReduceOp op);

// Blocks until all ranks have the group, or all have an error that names the rank which could not.
Result<std::unique_ptr<Group>> openGroup(MeshOptions options);

}  // namespace weft::coll
