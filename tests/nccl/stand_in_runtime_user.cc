// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// Makes a library want the shared CUDA runtime, as an NCCL does that is linked with it.
extern "C" int cudaGetDeviceCount(int* count);

extern "C" __attribute__((visibility("default"))) int standInGpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == 0 ? count : 0;
}
