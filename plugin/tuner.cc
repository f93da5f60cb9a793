// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The tuner's tables, newest first, and NCCL's calls without their version. Each signature that occurs in a
// table of version 2 to 6 is an overload here, picked by the type of the table's own field. No call fails: an
// error would end a communicator that can do without advice.
#include "nccl/tuner.h"

#include <algorithm>

#include "plugin/plugin.h"
#include "plugin/tuner_desk.h"
#include "src/base/process.h"

namespace weft::plugin::tuning {

namespace {

using tuner::Algorithm;
using tuner::Collective;
using tuner::indexOf;
using tuner::Protocol;

static_assert(indexOf(Collective::broadcast) == ncclFuncBroadcast);
static_assert(indexOf(Collective::reduce) == ncclFuncReduce);
static_assert(indexOf(Collective::allGather) == ncclFuncAllGather);
static_assert(indexOf(Collective::reduceScatter) == ncclFuncReduceScatter);
static_assert(indexOf(Collective::allReduce) == ncclFuncAllReduce);
static_assert(indexOf(Algorithm::tree) == NCCL_ALGO_TREE);
static_assert(indexOf(Algorithm::ring) == NCCL_ALGO_RING);
static_assert(indexOf(Algorithm::nvlsTree) == NCCL_ALGO_NVLS_TREE);
static_assert(indexOf(Algorithm::pat) == NCCL_ALGO_PAT);
static_assert(indexOf(Protocol::ll) == NCCL_PROTO_LL);
static_assert(indexOf(Protocol::ll128) == NCCL_PROTO_LL128);
static_assert(indexOf(Protocol::simple) == NCCL_PROTO_SIMPLE);
static_assert(tuner::kIgnored == NCCL_ALGO_PROTO_IGNORE);

// No exception passes it, and in a forked child nothing is touched.
template <class Body>
ncclResult_t quietly(Body&& body) noexcept {
  if (inForkedChild()) return ncclSuccess;
  try {
    body();
  } catch (...) {  // memory ran out: NCCL chooses by itself then
  }
  return ncclSuccess;
}

// The GPU's side of NCCL's own model. Our numbers are for the tables that do not tell it.
tuner::GpuLatencies latenciesOf(const ncclTunerConstants_v5_t* constants) {
  tuner::GpuLatencies gpu = tuner::defaultGpuLatencies();
  if (!constants) return gpu;
  for (size_t a = 0; a < NCCL_NUM_ALGORITHMS_V5; a++) {
    for (size_t p = 0; p < NCCL_NUM_PROTOCOLS_V5; p++) {
      gpu.baseUs[a][p] = std::max(0.0, constants->baseLatencies[a][p]);
      gpu.stepUs[a][p] = std::max(0.0, constants->hwLatencies[NCCL_HW_NVLINK][a][p]);
    }
  }
  return gpu;
}

// A null context afterwards means to NCCL a tuner without advice.
ncclResult_t open(void** context, tuner::Shape shape, ncclDebugLogger_t logger,
                  const ncclTunerConstants_v5_t* constants) {
  if (context) *context = nullptr;
  return quietly([&] {
    if (!context) return;
    tuner::Tuner tuner(Plugin::get().tunerPolicy(), latenciesOf(constants), shape);
    *context = TunerDesk::get().open(std::move(tuner), logger);
  });
}

// Versions 2 to 4.
ncclResult_t init(size_t ranks, size_t nodes, ncclDebugLogger_t logger, void** context) {
  return open(context, {nodes, ranks}, logger, nullptr);
}

// From version 5 on NCCL hands in its own assumptions about the GPU side.
ncclResult_t init(void** context, uint64_t /*commId*/, size_t ranks, size_t nodes, ncclDebugLogger_t logger,
                  ncclNvlDomainInfo_v5_t* /*domains*/, ncclTunerConstants_v5_t* constants) {
  return open(context, {nodes, ranks}, logger, constants);
}

ncclResult_t getCollInfo(void* context, ncclFunc_t collective, size_t bytes, int /*collNet*/, int nvls,
                         int pipelined, int* algorithm, int* protocol, int* /*channels*/) {
  return quietly([&] {
    TunerDesk::get().with(context, [&](const tuner::Tuner& tuner) {
      const auto pick = tuner.pick(static_cast<int>(collective), bytes, pipelined, nvls != 0);
      if (!pick || !algorithm || !protocol) return;
      *algorithm = static_cast<int>(pick->algorithm);
      *protocol = static_cast<int>(pick->protocol);
    });
  });
}

ncclResult_t getCollInfo(void* context, ncclFunc_t collective, size_t bytes, int pipelined, float** table,
                         int algorithms, int protocols, int* /*channels*/) {
  return quietly([&] {
    const tuner::CostTable costs{reinterpret_cast<float*>(table), algorithms, protocols};
    TunerDesk::get().with(context, [&](const tuner::Tuner& tuner) {
      tuner.price(static_cast<int>(collective), bytes, pipelined, costs);
    });
  });
}

ncclResult_t getCollInfo(void* context, ncclFunc_t collective, size_t bytes, int pipelined, float** table,
                         int algorithms, int protocols, int /*registered*/, int* channels) {
  return getCollInfo(context, collective, bytes, pipelined, table, algorithms, protocols, channels);
}

// finalize, or destroy in the older tables.
ncclResult_t close(void* context) {
  return quietly([&] { TunerDesk::get().close(context); });
}

// getChunkSize stays null: NCCL decides the size of pieces.
template <class Table>
constexpr Table makeTuner() {
  Table table{};
  table.name = "weft";
  table.init = &init;
  table.getCollInfo = &getCollInfo;
  if constexpr (requires { table.finalize; })
    table.finalize = &close;
  else
    table.destroy = &close;
  return table;
}

}  // namespace

}  // namespace weft::plugin::tuning

using weft::plugin::tuning::makeTuner;

#pragma GCC visibility push(default)
extern "C" constinit const ncclTuner_v6_t ncclTunerPlugin_v6 = makeTuner<ncclTuner_v6_t>();
extern "C" constinit const ncclTuner_v5_t ncclTunerPlugin_v5 = makeTuner<ncclTuner_v5_t>();
extern "C" constinit const ncclTuner_v4_t ncclTunerPlugin_v4 = makeTuner<ncclTuner_v4_t>();
extern "C" constinit const ncclTuner_v3_t ncclTunerPlugin_v3 = makeTuner<ncclTuner_v3_t>();
extern "C" constinit const ncclTuner_v2_t ncclTunerPlugin_v2 = makeTuner<ncclTuner_v2_t>();
#pragma GCC visibility pop
