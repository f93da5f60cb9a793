// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL tuner table, version 3: loaded by NCCL 2.22.3 and every release since (last looked at: 2.30.7).
// Against version 2 the tuner no longer chooses: it is given NCCL's costs and changes some. Threads and life
// times are those of version 2.
#pragma once

#include "nccl/tuner_v2.h"

// The cost of what cannot be had; the tuner must leave such entries alone.
#define NCCL_ALGO_PROTO_IGNORE (-1)

typedef struct {
  const char* name;
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t logger, void** context);
  // collCostTable is no array of pointers: it is float[numAlgo][numProto], in microseconds.
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, size_t nBytes, int numPipeOps,
                              float** collCostTable, int numAlgo, int numProto, int* nChannels);
  ncclResult_t (*destroy)(void* context);
} ncclTuner_v3_t;
