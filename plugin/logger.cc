// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/logger.h"

#include <algorithm>
#include <atomic>
#include <string_view>

#include "src/base/log.h"

// Our levels and lines in the form that NCCL's logger takes.
namespace weft::plugin {

namespace {

// NCCL's function; null: lines go to stderr. Release and acquire order it with the sink.
constinit std::atomic<ncclDebugLogger_t> current{nullptr};

// NCCL has no level between warning and abort, so an error is a warning there as well.
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

// NCCL_DEBUG=INFO alone shows the subsystem INIT and not NET. A line at info comes once for each object and
// is needed for support, so it belongs to both.
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

// NCCL cuts a line at 1,023 characters, its own prefix included.
constexpr size_t kMostInLine = 800;

// The end of the part that fits into a line, at a blank where there is one.
size_t lineEnd(std::string_view text) {
  if (text.size() <= kMostInLine) return text.size();
  const size_t space = text.rfind(' ', kMostInLine);
  return space == std::string_view::npos || space == 0 ? kMostInLine : space;
}

// Text that does not fit continues in lines at info: NCCL shows its user the last warning, and the reason is
// at the beginning of a message.
void toNccl(LogLevel level, const char* file, int line, const char* message) {
  const ncclDebugLogger_t logger = current.load(std::memory_order_acquire);
  if (!logger) return;
  std::string_view rest = message;
  for (bool first = true; first || !rest.empty(); first = false) {
    const size_t end = lineEnd(rest);
    const LogLevel at = first ? level : std::max(level, LogLevel::info);
    logger(levelOf(at), flagsOf(at), file, line, "NET/weft: %s%.*s%s", first ? "" : "...",
           static_cast<int>(end), rest.data(), end < rest.size() ? " ..." : "");
    rest.remove_prefix(end);
  }
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
