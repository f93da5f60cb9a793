// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/types.h"

// Failures are said in NCCL's log. Any thread once the logger is there.
namespace weft::baseline {

void logTo(ncclDebugLogger_t logger);

// Warns and returns `result`.
[[gnu::format(printf, 2, 3)]] ncclResult_t complain(ncclResult_t result, const char* format, ...);

}  // namespace weft::baseline
