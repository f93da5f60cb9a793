// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>

#include "nccl/types.h"

// Stands in for NCCL's profiler callback, which carries no context either: one sink a process that counts
// events and checks their order. It answers Start with an event handle only while enabled, as a profiler that
// did not ask for network events does not. Any thread.
namespace weft::netdriver {

class ProfilerSink {
 public:
  static ProfilerSink& instance();
  static ncclResult_t callback(void** eventHandle, int type, void* parentHandle, int64_t pluginId,
                               void* extData);

  void enable(bool on) { enabled_.store(on); }
  void reset();

  uint64_t starts() const { return starts_.load(); }
  uint64_t stops() const { return stops_.load(); }
  uint64_t open() const { return open_.load(); }
  // Stops or updates of a handle that Start did not give out, and Starts without a parent.
  uint64_t violations() const { return violations_.load(); }

 private:
  ncclResult_t start(void** eventHandle, void* parentHandle);
  ncclResult_t stop(void** eventHandle, bool last);

  std::atomic<bool> enabled_{false};
  std::atomic<uint64_t> starts_{0};
  std::atomic<uint64_t> stops_{0};
  std::atomic<uint64_t> open_{0};
  std::atomic<uint64_t> violations_{0};
};

}  // namespace weft::netdriver
