// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The tables NCCL looks up by name, newest first. They can be written to: see Entries::adopt.
#include "tools/record/tables.h"

using weft::record::Entries;

// NCCL's name for the table, what Entries wants to know of it, and the table.
#define WEFT_RECORD_TABLE(number)                                                              \
  extern "C" {                                                                                 \
  extern __attribute__((visibility("default"))) ncclNet_v##number##_t ncclNetPlugin_v##number; \
  }                                                                                            \
  template <>                                                                                  \
  int Entries<ncclNet_v##number##_t>::version() {                                              \
    return number;                                                                             \
  }                                                                                            \
  template <>                                                                                  \
  ncclNet_v##number##_t* Entries<ncclNet_v##number##_t>::own() {                               \
    return &ncclNetPlugin_v##number;                                                           \
  }                                                                                            \
  constinit ncclNet_v##number##_t ncclNetPlugin_v##number = Entries<ncclNet_v##number##_t>::make();

WEFT_RECORD_TABLE(12)
WEFT_RECORD_TABLE(11)
WEFT_RECORD_TABLE(10)
WEFT_RECORD_TABLE(9)
WEFT_RECORD_TABLE(8)
WEFT_RECORD_TABLE(7)
WEFT_RECORD_TABLE(6)
