// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>

// A libcuda.so.1 that shows STAND_IN_GPUS GPUs and does nothing else: for scripts/nccl-check, which has to
// choose among drivers.
#define STAND_IN_API extern "C" __attribute__((visibility("default")))

STAND_IN_API int cuInit(unsigned) {
  constexpr int kNoDevice = 100;
  return STAND_IN_GPUS > 0 ? 0 : kNoDevice;
}

STAND_IN_API int cuDeviceGetCount(int* count) {
  *count = STAND_IN_GPUS;
  return 0;
}

STAND_IN_API int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "stand-in %d", device);
  return 0;
}
