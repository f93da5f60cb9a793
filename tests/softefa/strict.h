// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tests/softefa/settings.h"

namespace softefa {

// Ends the process, with the reason on stderr, if `enabled` has the check. What hardware would punish later
// and elsewhere - a lost completion, memory overwritten - becomes visible where it was done. Any thread.
void violation(unsigned enabled, StrictCheck check, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

}  // namespace softefa
