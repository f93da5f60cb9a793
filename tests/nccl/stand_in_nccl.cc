// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// Says a version and does nothing else: what scripts/nccl-check is given to refuse.
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = STAND_IN_VERSION;
  return 0;
}
