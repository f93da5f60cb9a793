// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/coll/mesh.h"

// From settings to a group: which backend it gets, and that all ranks get a group or none does. Any thread.
namespace weft::coll {

// In the order of the setting's words.
enum class Offload : uint8_t { off, peers, tree, sharp };

// The setting WEFT_COLLNET; an error names the allowed words.
Result<Offload> offloadOf(const Config& config);

// True for the reductions that NCCL may ask of every group of this process. NCCL asks after it has connected
// its groups, and takes what all ranks say yes to. Switches know fewer reductions than ranks and daemons do.
bool offloadReduces(const Config& config, ElementType type, ReduceOp op);

// Blocks until all ranks have the group, or all ranks have an error that names the rank at fault.
Result<std::unique_ptr<Group>> openGroup(MeshOptions options);

}  // namespace weft::coll
