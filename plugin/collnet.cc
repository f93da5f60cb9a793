// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The tables of collective offload that NCCL looks up by name, newest first. Each is one line: see
// coll_abi.h.
#include "plugin/coll_abi.h"

using weft::plugin::coll_abi::makeCollNet;

#pragma GCC visibility push(default)
extern "C" constinit const ncclCollNet_v12_t ncclCollNetPlugin_v12 = makeCollNet<ncclCollNet_v12_t>();
extern "C" constinit const ncclCollNet_v11_t ncclCollNetPlugin_v11 = makeCollNet<ncclCollNet_v11_t>();
extern "C" constinit const ncclCollNet_v10_t ncclCollNetPlugin_v10 = makeCollNet<ncclCollNet_v10_t>();
extern "C" constinit const ncclCollNet_v9_t ncclCollNetPlugin_v9 = makeCollNet<ncclCollNet_v9_t>();
extern "C" constinit const ncclCollNet_v8_t ncclCollNetPlugin_v8 = makeCollNet<ncclCollNet_v8_t>();
extern "C" constinit const ncclCollNet_v7_t ncclCollNetPlugin_v7 = makeCollNet<ncclCollNet_v7_t>();
extern "C" constinit const ncclCollNet_v6_t ncclCollNetPlugin_v6 = makeCollNet<ncclCollNet_v6_t>();
#pragma GCC visibility pop
