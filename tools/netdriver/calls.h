// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <sys/resource.h>

#include "nccl/net.h"

// Which entry of a network table a number is about, and how much processor time the calls of each took:
// NCCL's proxy thread serves many connections, so no call may hold it for long. Values in nanoseconds of the
// calling thread's CPU time, less an allowance for every page it was the first to touch: libfabric's pools
// are tens of megabytes a card, and what a page costs is up to the kernel, the hypervisor and what else runs.
// A call that waits touches none. Any thread.
namespace weft::netdriver {

enum class Call : uint8_t {
  init,
  devices,
  getProperties,
  listen,
  connect,
  accept,
  regMr,
  deregMr,
  isend,
  irecv,
  iflush,
  test,
  closeSend,
  closeRecv,
  closeListen,
  finalize,
  setNetAttr,
  makeVDevice,
  count
};

constexpr size_t kCallCount = static_cast<size_t>(Call::count);

const char* callName(Call call);

// "ncclRemoteError" and the like.
const char* resultName(ncclResult_t result);

class CallMeter {
 public:
  // Off by default: reading the thread clock is a system call.
  void enable(bool on) { enabled_.store(on, std::memory_order_relaxed); }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  void record(Call call, int64_t nanoseconds);
  uint64_t calls(Call call) const { return calls_[index(call)].load(std::memory_order_relaxed); }
  int64_t maxNanoseconds(Call call) const { return max_[index(call)].load(std::memory_order_relaxed); }

  template <class F>
  ncclResult_t measure(Call call, F&& function) {
    if (!enabled()) return function();
    const int64_t begin = ownNanoseconds();
    const ncclResult_t result = function();
    record(call, ownNanoseconds() - begin);
    return result;
  }

 private:
  static size_t index(Call call) { return static_cast<size_t>(call); }
  static constexpr int64_t kPageNanoseconds = 20'000;  // 4 us in an idle virtual machine

  static int64_t ownNanoseconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - used.ru_minflt * kPageNanoseconds;
  }

  std::atomic<bool> enabled_{false};
  std::array<std::atomic<uint64_t>, kCallCount> calls_{};
  std::array<std::atomic<int64_t>, kCallCount> max_{};
};

}  // namespace weft::netdriver
