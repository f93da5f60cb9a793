// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/without.h"

// Runtime functions that versions of NCCL are linked with and that the software GPU does not have.

// NCCL 2.22 puts its work into a graph that is captured by these.
SOFTGPU_WITHOUT(cudaGraphAddEventWaitNode)
SOFTGPU_WITHOUT(cudaGraphAddHostNode)
SOFTGPU_WITHOUT(cudaGraphAddKernelNode)
