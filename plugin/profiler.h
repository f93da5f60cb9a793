// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "nccl/types.h"
#include "src/core/net.h"

// Reports every send and receive to the profiler that NCCL has loaded. Events have the descriptors that
// existing profilers know: InfiniBand's where the fabric is verbs, the socket's elsewhere. The threads that
// post and test call it; it keeps nothing between calls but the callback.
namespace weft::plugin {

// Null without a callback. `provider` is spelled as by Transport::name.
std::shared_ptr<core::ProfilerSink> makeProfiler(ncclProfilerCallback_t callback,
                                                 const std::string& provider);

}  // namespace weft::plugin
