// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "nccl/types.h"

// Stands in for NCCL's logger, which carries no context: one record a process, emptied by whoever starts a
// test. Any thread.
namespace weft::abi {

void recordLine(ncclDebugLogLevel level, unsigned long flags, const char* file, int line, const char* format,
                ...);

void forgetLines();
int countOf(ncclDebugLogLevel level);
std::string linesOf(ncclDebugLogLevel level);

}  // namespace weft::abi
