// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/report.h"

// A function of CUDA's that the software GPU does not have: a call says so and fails. Its parameters do not
// matter for that, so they are not declared.
#define SOFTGPU_WITHOUT(name)           \
  SOFTGPU_API softgpu::Result name() {  \
    return softgpu::unsupported(#name); \
  }
