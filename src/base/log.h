// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdarg>
#include <string>

// The whole library has one log. The plugin installs a sink that hands each line to NCCL's logger; without a
// sink, lines go to stderr from the level that WEFT_DEBUG names. Any thread. Levels: error - the user must
// act; warn - we go on worse; info - once per object; trace - per message, in debug builds only. Lower case,
// no '=', names before numbers.
namespace weft {

enum class LogLevel : int { none = 0, error = 1, warn = 2, info = 3, trace = 4 };

// `message` is a line without newline, valid during the call only. A sink must be thread-safe and must not
// throw.
using LogSink = void (*)(LogLevel level, const char* file, int line, const char* message);

LogSink setLogSink(LogSink sink);  // returns the previous sink; null restores stderr
void setLogLevel(LogLevel level);
bool logEnabled(LogLevel level);
bool parseLogLevel(const char* text, LogLevel* out);

void logLine(LogLevel level, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

// printf into a string, for the details of an Error.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

// The number of warnings and errors logged so far. A test that did not announce them fails.
int loggedWarnings();

}  // namespace weft

#define WEFT_LOG(level, ...)                                                     \
  do {                                                                           \
    if (::weft::logEnabled(::weft::LogLevel::level))                             \
      ::weft::logLine(::weft::LogLevel::level, __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)
