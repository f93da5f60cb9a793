// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/calls.h"

namespace weft::netdriver {

const char* callName(Call call) {
  static constexpr std::array<const char*, kCallCount> kNames = {
      "init",      "devices",   "getProperties", "listen",   "connect",    "accept",
      "regMr",     "deregMr",   "isend",         "irecv",    "iflush",     "test",
      "closeSend", "closeRecv", "closeListen",   "finalize", "setNetAttr", "makeVDevice"};
  return call < Call::count ? kNames[static_cast<size_t>(call)] : "?";
}

const char* resultName(ncclResult_t result) {
  static constexpr std::array<const char*, ncclNumResults> kNames = {
      "ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
      "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
      "ncclRemoteError",   "ncclInProgress",         "ncclTimeout"};
  const auto index = static_cast<size_t>(result);
  return index < kNames.size() ? kNames[index] : "an unknown result";
}

void CallMeter::record(Call call, int64_t nanoseconds) {
  calls_[index(call)].fetch_add(1, std::memory_order_relaxed);
  auto& max = max_[index(call)];
  int64_t seen = max.load(std::memory_order_relaxed);
  while (nanoseconds > seen && !max.compare_exchange_weak(seen, nanoseconds, std::memory_order_relaxed)) {
  }
}

}  // namespace weft::netdriver
