// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The tables NCCL looks up by name, newest first: those of the network, and those for collective offload. The
// former can be written to: see Entries::adopt. Those of one-sided operations have versions of their own.
#include "tools/record/tables.h"

#include "tools/record/coll_tables.h"
#include "tools/record/rma_tables.h"

using weft::record::CollEntries;
using weft::record::Entries;
using weft::record::RmaEntries;
using weft::record::SharedEntries;

// NCCL's names for the two tables of a version, what the entries want to know of them, and the tables.
#define WEFT_RECORD_TABLES(number)                                                                           \
  extern "C" {                                                                                               \
  extern __attribute__((visibility("default"))) ncclNet_v##number##_t ncclNetPlugin_v##number;               \
  extern __attribute__((visibility("default"))) const ncclCollNet_v##number##_t ncclCollNetPlugin_v##number; \
  }                                                                                                          \
  template <>                                                                                                \
  int SharedEntries<ncclNet_v##number##_t>::version() {                                                      \
    return number;                                                                                           \
  }                                                                                                          \
  template <>                                                                                                \
  int SharedEntries<ncclCollNet_v##number##_t>::version() {                                                  \
    return number;                                                                                           \
  }                                                                                                          \
  template <>                                                                                                \
  ncclNet_v##number##_t* Entries<ncclNet_v##number##_t>::own() {                                             \
    return &ncclNetPlugin_v##number;                                                                         \
  }                                                                                                          \
  constinit ncclNet_v##number##_t ncclNetPlugin_v##number = Entries<ncclNet_v##number##_t>::make();          \
  constinit const ncclCollNet_v##number##_t ncclCollNetPlugin_v##number =                                    \
      CollEntries<ncclCollNet_v##number##_t>::make();

WEFT_RECORD_TABLES(12)
WEFT_RECORD_TABLES(11)
WEFT_RECORD_TABLES(10)
WEFT_RECORD_TABLES(9)
WEFT_RECORD_TABLES(8)
WEFT_RECORD_TABLES(7)
WEFT_RECORD_TABLES(6)

#define WEFT_RECORD_RMA_TABLE(number)                                                                \
  extern "C" {                                                                                       \
  extern __attribute__((visibility("default"))) const ncclRma_v##number##_t ncclRmaPlugin_v##number; \
  }                                                                                                  \
  template <>                                                                                        \
  int RmaEntries<ncclRma_v##number##_t>::version() {                                                 \
    return number;                                                                                   \
  }                                                                                                  \
  constinit const ncclRma_v##number##_t ncclRmaPlugin_v##number = RmaEntries<ncclRma_v##number##_t>::make();

WEFT_RECORD_RMA_TABLE(16)
WEFT_RECORD_RMA_TABLE(15)
WEFT_RECORD_RMA_TABLE(14)
WEFT_RECORD_RMA_TABLE(13)
