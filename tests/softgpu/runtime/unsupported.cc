// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/report.h"
#include "tests/softgpu/runtime/runtime.h"

// Runtime functions that versions of NCCL are linked with and that the software GPU does not have: a call
// says so and fails. Their parameters do not matter for that, so they are not declared.
#define SOFTGPU_WITHOUT(name)           \
  SOFTGPU_API softgpu::Result name() {  \
    return softgpu::unsupported(#name); \
  }

// NCCL 2.22 puts its work into a graph that is captured by these.
SOFTGPU_WITHOUT(cudaGraphAddEventWaitNode)
SOFTGPU_WITHOUT(cudaGraphAddHostNode)
SOFTGPU_WITHOUT(cudaGraphAddKernelNode)
