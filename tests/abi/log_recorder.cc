// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/abi/log_recorder.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

namespace weft::abi {

namespace {

std::mutex mutex;
std::vector<std::pair<ncclDebugLogLevel, std::string>> lines;

}  // namespace

void recordLine(ncclDebugLogLevel level, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
                const char* format, ...) {
  char text[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  std::lock_guard lock(mutex);
  lines.emplace_back(level, text);
}

void forgetLines() {
  std::lock_guard lock(mutex);
  lines.clear();
}

int countOf(ncclDebugLogLevel level) {
  std::lock_guard lock(mutex);
  int count = 0;
  for (const auto& line : lines) count += line.first == level;
  return count;
}

std::string linesOf(ncclDebugLogLevel level) {
  std::lock_guard lock(mutex);
  std::string all;
  for (const auto& line : lines)
    if (line.first == level) all += line.second + "\n";
  return all;
}

}  // namespace weft::abi
