// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Every version of NCCL's network table that the plugin exports, 6 to 12: together they serve NCCL
// 2.13.4 and later. NCCL takes the newest it knows, looking for a symbol ncclNetPlugin_v<version>.
// Each header tells which releases load its version, and what is different from the one before.
#pragma once

#include "nccl/net_v10.h"
#include "nccl/net_v11.h"
#include "nccl/net_v12.h"
#include "nccl/net_v6.h"
#include "nccl/net_v7.h"
#include "nccl/net_v8.h"
#include "nccl/net_v9.h"
