// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

namespace softgpu {

// From now on a CPU access to device memory ends the process with a line that names address and allocation.
// Any thread.
void watchForAccess();

}  // namespace softgpu
