// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/log_sink.h"

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "tools/netdriver/speaker.h"

namespace weft::netdriver {

namespace {

constexpr size_t kRemembered = 200;
constexpr size_t kLineBytes = 1024;  // NCCL's own logger cuts at the same length

const char* levelName(ncclDebugLogLevel level) {
  switch (level) {
    case NCCL_LOG_WARN:
      return "WARN";
    case NCCL_LOG_ABORT:
      return "ERROR";
    case NCCL_LOG_TRACE:
      return "TRACE";
    default:
      return "INFO";
  }
}

bool isWarning(ncclDebugLogLevel level) {
  return level == NCCL_LOG_WARN || level == NCCL_LOG_ABORT;
}

// "NET/weft: weft 0.2.0 over ofi:net (libfabric 1.17), devices: ...": what stands between.
std::string fabricOf(std::string_view text) {
  constexpr std::string_view kOver = " over ";
  const size_t over = text.find(kOver);
  const size_t end = text.find(", devices: ");
  if (!text.starts_with("NET/weft: weft ") || over == text.npos || end == text.npos || end < over) return {};
  return std::string(text.substr(over + kOver.size(), end - over - kOver.size()));
}

}  // namespace

LogSink& LogSink::instance() {
  // Never destroyed: a plugin's thread may log while the process ends.
  static auto& sink = *std::make_unique<LogSink>().release();
  return sink;
}

void LogSink::callback(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format, ...) {
  char text[kLineBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  instance().write(level, text);
}

void LogSink::write(ncclDebugLogLevel level, const char* text) {
  const bool warning = isWarning(level);
  if ((warning && !quiet_) || (!warning && verbose_))
    std::fprintf(stderr, "%s%s %s\n", speaker().c_str(), levelName(level), text);
  std::lock_guard lock(mutex_);
  if (std::string fabric = fabricOf(text); !fabric.empty()) fabric_ = std::move(fabric);
  if (!warning) return;
  if (warnings_.size() == kRemembered) warnings_.erase(warnings_.begin());
  warnings_.emplace_back(text);
}

size_t LogSink::warnings() const {
  std::lock_guard lock(mutex_);
  return warnings_.size();
}

std::string LogSink::takeFabric() {
  std::lock_guard lock(mutex_);
  return std::exchange(fabric_, {});
}

std::vector<std::string> LogSink::takeWarnings() {
  std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

}  // namespace weft::netdriver
