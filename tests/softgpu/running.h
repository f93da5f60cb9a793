// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

namespace softgpu {

// A kernel that runs while this lives. Any thread.
class RunningKernel {
 public:
  RunningKernel();
  ~RunningKernel();
  RunningKernel(const RunningKernel&) = delete;
  RunningKernel& operator=(const RunningKernel&) = delete;
};

// With SOFTGPU_WAITS: returns at a moment at which no kernel of this process runs. For calls that allocate,
// free and map, of which CUDA says that they may wait for the device.
void mayWaitForKernels();

}  // namespace softgpu
