// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "tests/system/driver/traffic.h"

// Endless messages of 1 MiB in one direction, a window at a time, verified; for faults in the middle of a
// transfer. One thread.
namespace weft::system {

class Flow {
 public:
  Flow(Run& run, const Comm& comm, bool receives);

  // Posts and tests once; what the first call that failed returned.
  ncclResult_t step();
  uint64_t done() const { return done_; }
  // From here on nothing more is posted than this many messages.
  void limit(uint64_t messages) { limit_ = messages; }

 private:
  static constexpr size_t kBytes = size_t{1} << 20;
  static constexpr size_t kWindow = 4;
  static constexpr int kTag = 4;

  std::byte* slot(uint64_t message) const { return memory_.data() + message % kWindow * kBytes; }
  ncclResult_t postNext();

  Run& run_;
  const Comm& comm_;
  bool receives_;
  Memory memory_;
  std::array<void*, kWindow> requests_{};
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  uint64_t limit_ = UINT64_MAX;
};

// The plugin's warnings since the last look contain all of these.
void expectMessage(Run& run, const std::vector<std::string>& parts);

}  // namespace weft::system
