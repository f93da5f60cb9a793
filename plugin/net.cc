// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The tables NCCL looks up by name, newest first. Each is one line: see abi.h.
#include "plugin/abi.h"

using weft::plugin::abi::makeNet;

#pragma GCC visibility push(default)
extern "C" constinit const ncclNet_v12_t ncclNetPlugin_v12 = makeNet<ncclNet_v12_t>();
extern "C" constinit const ncclNet_v11_t ncclNetPlugin_v11 = makeNet<ncclNet_v11_t>();
extern "C" constinit const ncclNet_v10_t ncclNetPlugin_v10 = makeNet<ncclNet_v10_t>();
extern "C" constinit const ncclNet_v9_t ncclNetPlugin_v9 = makeNet<ncclNet_v9_t>();
extern "C" constinit const ncclNet_v8_t ncclNetPlugin_v8 = makeNet<ncclNet_v8_t>();
extern "C" constinit const ncclNet_v7_t ncclNetPlugin_v7 = makeNet<ncclNet_v7_t>();
extern "C" constinit const ncclNet_v6_t ncclNetPlugin_v6 = makeNet<ncclNet_v6_t>();
#pragma GCC visibility pop
