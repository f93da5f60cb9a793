// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "nccl/types.h"

// Sends the library's log through NCCL's logger, so that NCCL_DEBUG, NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS
// hold for it too. All lines go to a single logger: the newest, of those whose users are there (plugin.cc).
// NCCL hands in the same one each time. Any thread.
namespace weft::plugin {

// A null logger changes nothing.
void useLogger(ncclDebugLogger_t logger);

// Back to stderr: the library that the logger belongs to may be unloaded from now on.
void dropLogger();

}  // namespace weft::plugin
