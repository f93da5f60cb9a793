// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL tuner table, version 6: loaded by NCCL 2.30.3 and every release since (last looked at: 2.30.7, which
// prefers it). Against version 5 the tuner can set the size of pieces; getChunkSize may be null. Threads and
// life times are those of version 2.
#pragma once

#include "nccl/tuner_v5.h"

typedef ncclNvlDomainInfo_v5_t ncclNvlDomainInfo_v6_t;
typedef ncclTunerConstants_v5_t ncclTunerConstants_v6_t;

typedef struct {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t commId, size_t nRanks, size_t nNodes,
                       ncclDebugLogger_t logger, ncclNvlDomainInfo_v6_t* nvlDomains,
                       ncclTunerConstants_v6_t* constants);
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, size_t nBytes, int numPipeOps,
                              float** collCostTable, int numAlgo, int numProto, int regBuff, int* nChannels);
  ncclResult_t (*finalize)(void* context);
  ncclResult_t (*getChunkSize)(void* context, ncclFunc_t collType, size_t nBytes, int algorithm, int protocol,
                               int nChannels, size_t* chunkSize);
} ncclTuner_v6_t;
