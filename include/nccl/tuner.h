// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Every version of NCCL's tuner table that the plugin exports, 2 to 6: together they serve NCCL 2.21.5 and
// later. NCCL takes the newest it knows, looking for a symbol ncclTunerPlugin_v<version> in the tuner's own
// library and, if none can be opened, in the network plugin's. Each header tells which releases load its
// version, and what is different from the one before.
#pragma once

#include "nccl/tuner_v2.h"
#include "nccl/tuner_v3.h"
#include "nccl/tuner_v4.h"
#include "nccl/tuner_v5.h"
#include "nccl/tuner_v6.h"
