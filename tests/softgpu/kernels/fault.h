// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tests/softgpu/kernels/block.h"

namespace softgpu {

// Waits as a slow GPU does before it moves a piece (SOFTGPU_FAULTS slow=TIME).
void beSlow(Block& block);
// Before a kernel starts (late=TIME). True: this kernel hangs until it is aborted (hang=N), and has been.
bool beLateOrHang(Block& block, bool hangs);
// Counts a launch; true for the one that is to hang.
bool nextLaunchHangs();

}  // namespace softgpu
