// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The tables for collective offload that NCCL looks up by name, newest first.
#include "tools/record/coll_tables.h"

using weft::record::CollEntries;

#define WEFT_RECORD_COLL_TABLE(number)                                                                       \
  extern "C" {                                                                                               \
  extern __attribute__((visibility("default"))) const ncclCollNet_v##number##_t ncclCollNetPlugin_v##number; \
  }                                                                                                          \
  template <>                                                                                                \
  int CollEntries<ncclCollNet_v##number##_t>::version() {                                                    \
    return number;                                                                                           \
  }                                                                                                          \
  constinit const ncclCollNet_v##number##_t ncclCollNetPlugin_v##number =                                    \
      CollEntries<ncclCollNet_v##number##_t>::make();

WEFT_RECORD_COLL_TABLE(12)
WEFT_RECORD_COLL_TABLE(11)
WEFT_RECORD_COLL_TABLE(10)
WEFT_RECORD_COLL_TABLE(9)
WEFT_RECORD_COLL_TABLE(8)
WEFT_RECORD_COLL_TABLE(7)
WEFT_RECORD_COLL_TABLE(6)
