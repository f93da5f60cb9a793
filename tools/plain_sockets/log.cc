// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plain_sockets/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace weft::baseline {

namespace {

std::atomic<ncclDebugLogger_t> sink{nullptr};

}  // namespace

void logTo(ncclDebugLogger_t logger) {
  sink = logger;
}

ncclResult_t complain(ncclResult_t result, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (const ncclDebugLogger_t logger = sink.load(); logger != nullptr)
    logger(NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "plain sockets: %s", text);
  return result;
}

}  // namespace weft::baseline
