// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// NCCL tuner table, version 2: loaded by NCCL 2.21.5 and every release since (last looked at: 2.30.7).
//
// init and destroy are called once a communicator, by the thread that makes or ends it; getCollInfo for each
// collective that is launched, by the user's thread. All ranks must come to the same answer, so it may depend
// on nothing but what they share. An error ends the communicator.
#pragma once

#include "nccl/types.h"

#define NCCL_ALGO_UNDEF (-1)
#define NCCL_ALGO_TREE 0
#define NCCL_ALGO_RING 1
#define NCCL_ALGO_COLLNET_DIRECT 2
#define NCCL_ALGO_COLLNET_CHAIN 3
#define NCCL_ALGO_NVLS 4
#define NCCL_ALGO_NVLS_TREE 5
#define NCCL_ALGO_PAT 6
#define NCCL_NUM_ALGORITHMS 7

#define NCCL_PROTO_UNDEF (-1)
#define NCCL_PROTO_LL 0
#define NCCL_PROTO_LL128 1
#define NCCL_PROTO_SIMPLE 2
#define NCCL_NUM_PROTOCOLS 3

typedef struct {
  const char* name;
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t logger, void** context);
  // Algorithm and protocol are preset to UNDEF, which leaves the choice to NCCL; bytes are those of the
  // larger of a rank's two buffers.
  ncclResult_t (*getCollInfo)(void* context, ncclFunc_t collType, size_t nBytes, int collNetSupport,
                              int nvlsSupport, int numPipeOps, int* algorithm, int* protocol, int* nChannels);
  ncclResult_t (*destroy)(void* context);
} ncclTuner_v2_t;
