// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <utility>

#include "nccl/types.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "weft/result.h"

// The one error gate between the library and NCCL. Every call of NCCL's runs inside one of the two guards: no
// exception passes them, they log an Error, and only here does a Code become an ncclResult_t. In a forked
// child both return at once and touch nothing. Any thread.
namespace weft::plugin {

// By class: arguments, usage, system, remote, internal.
ncclResult_t resultOf(Code code);

// Logs "call: error" and returns the result for it.
[[gnu::cold]] ncclResult_t report(const char* call, const Error& error, LogLevel level) noexcept;

// The error for an argument that cannot be used.
Error refused(const char* operation, const char* why);

// Logs a fault in the arguments of a data call and returns its result: data calls have no Status.
[[gnu::cold]] ncclResult_t dataFault(const char* call, const char* why);

// Only within a catch block: the same for the exception that is being handled.
[[gnu::cold]] ncclResult_t reportException(const char* call) noexcept;

// The answer to a call in a forked child. There is no log line: the logger may hold a lock that the fork
// copied.
constexpr ncclResult_t kForkedChild = ncclSystemError;

// Control path: `body` returns a Status. Failures from which NCCL recovers are logged at info.
template <class Body>
ncclResult_t guard(const char* call, Body&& body, LogLevel level = LogLevel::error) noexcept {
  if (inForkedChild()) [[unlikely]]
    return kForkedChild;
  try {
    const Status status = std::forward<Body>(body)();
    return status ? ncclSuccess : report(call, status.error(), level);
  } catch (...) {
    return reportException(call);
  }
}

// Data path: `body` returns an ncclResult_t. A comm's sticky error was logged when it happened.
template <class Body>
[[gnu::always_inline]] inline ncclResult_t guardData(const char* call, Body&& body) noexcept {
  if (inForkedChild()) [[unlikely]]
    return kForkedChild;
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return reportException(call);
  }
}

}  // namespace weft::plugin
