// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/settings.h"

bool softgpu::speaks() {
  return true;
}
