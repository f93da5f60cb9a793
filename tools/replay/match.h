// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/replay/plan.h"

namespace weft::replay {

// Finds who connected to whom, by the handles, and which message is which. Used by one thread.
Status matchRanks(Plan* plan);

}  // namespace weft::replay
