// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/replay/plan.h"

namespace weft::replay {

// Finds who connected to whom, by the handles, and which message is which. Used by one thread.
Status matchRanks(Plan* plan);

// Of a group of one-sided operations: what its puts write, and where. The queues are in the order of the
// ranks.
Status matchWindows(Plan* plan, const std::vector<Queue*>& group);

}  // namespace weft::replay
