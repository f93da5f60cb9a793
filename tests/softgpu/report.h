// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

namespace softgpu {

// Writes one line to stderr that begins with "software GPU: ", so that nobody takes it for a GPU's driver.
// Any thread.
void report(const std::string& line);

// Says once per name that a function was called which the software GPU does not have. Returns CUDA's "not
// supported" (801).
int unsupported(const char* function, const char* what = "");

}  // namespace softgpu
