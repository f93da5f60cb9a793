// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "nccl/types.h"
#include "src/core/net.h"

// Reports every send and receive to the profiler NCCL has loaded. The events use the descriptors existing
// profilers know: InfiniBand's where the fabric is verbs, the socket one elsewhere. Called by whoever posts
// and tests; keeps nothing between calls but the callback.
namespace weft::plugin {

// Null when there is no callback. `provider` as Transport::name spells it.
std::shared_ptr<core::ProfilerSink> makeProfiler(ncclProfilerCallback_t callback,
                                                 const std::string& provider);

}  // namespace weft::plugin
