// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>

#include "src/core/net.h"

// What NCCL may merge: it asks for virtual devices through makeVDevice, and cannot use every one. Any thread.
namespace weft::core {

// Why NCCL would lose a device made of these. Indices that are none are makeVirtual's business.
Status ncclCanMerge(const Net& net, std::span<const int> members);

}  // namespace weft::core
