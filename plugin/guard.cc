// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/guard.h"

#include <exception>
#include <new>

// The way of an error to NCCL: a result code, and a line in the log.
namespace weft::plugin {

// NCCL shows the class of its result to the user: usage and system errors are local, remote errors are not.
ncclResult_t resultOf(Code code) {
  switch (code) {
    case Code::invalidArgument:
      return ncclInvalidArgument;
    case Code::config:
      return ncclInvalidUsage;
    case Code::unavailable:
    case Code::resources:
    case Code::system:
      return ncclSystemError;
    case Code::remote:
    case Code::timeout:
      return ncclRemoteError;
    case Code::internal:
      return ncclInternalError;
  }
  return ncclInternalError;
}

// Building the text may run out of memory; the result is the error's own all the same.
ncclResult_t report(const char* call, const Error& error, LogLevel level) noexcept {
  try {
    if (logEnabled(level)) logLine(level, __FILE__, __LINE__, "%s failed: %s", call, error.message().c_str());
  } catch (...) {
    return resultOf(error.code());
  }
  return resultOf(error.code());
}

Error refused(const char* operation, const char* why) {
  return Error(Code::invalidArgument, operation, why);
}

ncclResult_t dataFault(const char* call, const char* why) {
  return report(call, refused("checking arguments", why), LogLevel::error);
}

// Exceptions are the standard library's: weft's own code throws none.
ncclResult_t reportException(const char* call) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    // No log line: formatting one would allocate. NCCL reports the failing call itself.
    return resultOf(Code::resources);
  } catch (const std::exception& exception) {
    return report(call, Error(Code::internal, "unexpected exception", exception.what()), LogLevel::error);
  } catch (...) {
    return ncclInternalError;
  }
}

}  // namespace weft::plugin
