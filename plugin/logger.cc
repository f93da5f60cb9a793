// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/logger.h"

#include <atomic>

#include "src/base/log.h"

namespace weft::plugin {

namespace {

constinit std::atomic<ncclDebugLogger_t> current{nullptr};

// NCCL knows nothing between warning and abort, so an error is a warning there as well.
ncclDebugLogLevel levelOf(LogLevel level) {
  switch (level) {
    case LogLevel::none:
      return NCCL_LOG_NONE;
    case LogLevel::error:
    case LogLevel::warn:
      return NCCL_LOG_WARN;
    case LogLevel::info:
      return NCCL_LOG_INFO;
    case LogLevel::trace:
      return NCCL_LOG_TRACE;
  }
  return NCCL_LOG_INFO;
}

// NCCL_DEBUG=INFO alone shows the INIT subsystem but not NET; what we say at info is said once an object and
// is what a support request needs, so it belongs to both.
unsigned long flagsOf(LogLevel level) {
  switch (level) {
    case LogLevel::info:
      return NCCL_INIT | NCCL_NET;
    case LogLevel::trace:
      return NCCL_NET;
    default:
      return static_cast<unsigned long>(NCCL_ALL);
  }
}

void toNccl(LogLevel level, const char* file, int line, const char* message) {
  if (const ncclDebugLogger_t logger = current.load(std::memory_order_acquire))
    logger(levelOf(level), flagsOf(level), file, line, "NET/weft: %s", message);
}

}  // namespace

void useLogger(ncclDebugLogger_t logger) {
  if (!logger) return;
  current.store(logger, std::memory_order_release);
  setLogSink(&toNccl);
}

void dropLogger() {
  setLogSink(nullptr);
  current.store(nullptr, std::memory_order_release);
}

}  // namespace weft::plugin
