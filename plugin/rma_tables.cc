// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The tables of one-sided operations that NCCL looks up by name, newest first. Each is one line: see
// rma_abi.h.
#include "plugin/rma_abi.h"

using weft::plugin::rma_abi::makeRma;

#pragma GCC visibility push(default)
extern "C" constinit const ncclRma_v16_t ncclRmaPlugin_v16 = makeRma<ncclRma_v16_t>();
extern "C" constinit const ncclRma_v15_t ncclRmaPlugin_v15 = makeRma<ncclRma_v15_t>();
extern "C" constinit const ncclRma_v14_t ncclRmaPlugin_v14 = makeRma<ncclRma_v14_t>();
extern "C" constinit const ncclRma_v13_t ncclRmaPlugin_v13 = makeRma<ncclRma_v13_t>();
#pragma GCC visibility pop
