// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <strings.h>
#include <unistd.h>

#include "src/base/printable.h"

// Formatting of lines, and the choice between the sink and stderr.
namespace weft {

namespace {

// The sink, the level for stderr, and the count of warnings; all may change while other threads log.
std::atomic<LogSink> sink{nullptr};
std::atomic<int> level{static_cast<int>(LogLevel::warn)};
std::atomic<int> warnings{0};

constexpr const char* kNames[] = {"NONE", "ERROR", "WARN", "INFO", "TRACE"};
constexpr size_t kLineBytes = 8192;  // longer texts are cut

// A single write(2), so that lines of several processes do not mix.
void writeStderr(LogLevel lineLevel, const char* message) {
  char line[kLineBytes + 64];
  const int n =
      snprintf(line, sizeof line, "weft[%d] %s %s\n", getpid(), kNames[static_cast<int>(lineLevel)], message);
  if (n > 0) (void)!write(STDERR_FILENO, line, std::min(static_cast<size_t>(n), sizeof line - 1));
}

// Formats into the stack first; only a longer text needs a second pass.
std::string formatList(const char* pattern, va_list args) {
  char buffer[512];
  va_list again;
  va_copy(again, args);
  const int n = vsnprintf(buffer, sizeof buffer, pattern, args);
  std::string text =
      n < 0 ? std::string(pattern) : std::string(buffer, std::min(static_cast<size_t>(n), sizeof buffer - 1));
  if (n >= static_cast<int>(sizeof buffer)) {
    text.resize(std::min(static_cast<size_t>(n), kLineBytes));
    (void)vsnprintf(text.data(), text.size() + 1, pattern, again);
  }
  va_end(again);
  return text;
}

}  // namespace

LogSink setLogSink(LogSink newSink) {
  return sink.exchange(newSink);
}

void setLogLevel(LogLevel newLevel) {
  level.store(static_cast<int>(newLevel), std::memory_order_relaxed);
}

// With a sink, the receiver filters (NCCL_DEBUG). Trace lines exist in debug builds only.
bool logEnabled(LogLevel lineLevel) {
#ifdef NDEBUG
  if (lineLevel == LogLevel::trace) return false;
#endif
  if (sink.load(std::memory_order_relaxed)) return true;
  return lineLevel <= LogLevel::warn || static_cast<int>(lineLevel) <= level.load(std::memory_order_relaxed);
}

bool parseLogLevel(const char* text, LogLevel* out) {
  for (size_t i = 0; i < std::size(kNames); i++) {
    if (strcasecmp(text, kNames[i]) != 0) continue;
    *out = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

void logLine(LogLevel lineLevel, const char* file, int line, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  // Names and reasons of peers are in it: what they put there must not write lines of its own.
  const std::string message = printable(formatList(pattern, args));
  va_end(args);
  if (lineLevel <= LogLevel::warn) warnings.fetch_add(1, std::memory_order_relaxed);
  if (LogSink current = sink.load(std::memory_order_acquire)) {
    current(lineLevel, file, line, message.c_str());
  } else if (static_cast<int>(lineLevel) <= level.load(std::memory_order_relaxed)) {
    writeStderr(lineLevel, message.c_str());
  }
}

std::string format(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  std::string text = formatList(pattern, args);
  va_end(args);
  return text;
}

int loggedWarnings() {
  return warnings.load(std::memory_order_relaxed);
}

}  // namespace weft
