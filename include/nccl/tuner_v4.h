// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL tuner table, version 4: loaded by NCCL 2.24.3 and every release since (last looked at: 2.30.7).
// Against version 3 getCollInfo is told whether the buffers could be registered. Threads and life times are
// those of version 2.
#pragma once

#include "nccl/tuner_v3.h"

typedef struct {
  const char* name;
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t logger, void** context);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, size_t nBytes, int numPipeOps,
                              float** collCostTable, int numAlgo, int numProto, int regBuff, int* nChannels);
  ncclResult_t (*destroy)(void* context);
} ncclTuner_v4_t;
