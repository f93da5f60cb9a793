// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>

#include "src/base/clock.h"

// Connections that are being made from an engine. Until they stand none of its peerings ends for being idle:
// the peer may be answering on one. What NCCL has given up without a word counts no longer than a connection
// that it still asks for could take. Owned by the Engine; any thread.
namespace weft::core {

class ConnectHold {
 public:
  void begin() { count_++; }
  void end() { count_--; }
  void asked(TimePoint until) { until_ = until.time_since_epoch().count(); }  // NCCL called connect
  bool holds(TimePoint now) const { return count_ > 0 && now.time_since_epoch().count() <= until_; }

 private:
  std::atomic<int> count_{0};
  std::atomic<TimePoint::rep> until_{0};
};

}  // namespace weft::core
