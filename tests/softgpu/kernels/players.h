// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tests/softgpu/kernels/kernel.h"
#include "tests/softgpu/kernels/layout.h"

namespace softgpu {

// NCCL's kernels. All of them are one: what is done follows from the work.
void playNccl(Launch& launch, const Layout& layout, int version);
// NCCL's kernel for communicators of one rank, which multiplies by a factor.
void playOneRank(Launch& launch, const std::string& type);

// A kernel cannot go on: says why, and every later call for the device's work fails as after a fault of a
// GPU.
void failKernel(const std::string& why);
Result kernelFailure();

}  // namespace softgpu
