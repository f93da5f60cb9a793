// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/types.h"

// Sends the library's log through NCCL's logger, so that NCCL_DEBUG, NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS
// hold for it too. The whole process has one logger; the newest wins, as NCCL hands in the same each time.
// Any thread.
namespace weft::plugin {

// A null logger changes nothing.
void useLogger(ncclDebugLogger_t logger);

// Back to stderr: whoever gave the logger may be unloaded from now on.
void dropLogger();

}  // namespace weft::plugin
