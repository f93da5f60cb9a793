// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/calls.h"
#include "plugin/guard.h"

// init and finalize. The state behind them: plugin.h.
namespace weft::plugin {

// A machine without a usable fabric is no error: init succeeds, and devices says 0. An NCCL whose init fails
// calls finalize all the same.
ncclResult_t startShared(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler) {
  return guard("init", [&] { return Plugin::get().start(logger, profiler); });
}

ncclResult_t openContext(void** context, uint64_t communicator, int trafficClass, ncclDebugLogger_t logger,
                         ncclProfilerCallback_t profiler) {
  return guard("init", [&]() -> Status {
    if (!context) return Error(Code::invalidArgument, "opening a context", "no place for the context");
    *context = nullptr;
    TRY(*context, Plugin::get().openContext(communicator, trafficClass, logger, profiler));
    return {};
  });
}

// An NCCL whose init failed holds null.
ncclResult_t closeContext(void* context) {
  return guard("finalize", [&]() -> Status {
    if (!context) return {};
    return Plugin::get().closeContext(context);
  });
}

}  // namespace weft::plugin
