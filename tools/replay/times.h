// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "tools/trace/format.h"

// Where a replay's time went, beside where the job's did. Plain values, sent to rank 0 as they are; one for
// each thread of a rank until they are added up.
namespace weft::replay {

inline uint64_t nanoseconds(std::chrono::steady_clock::duration time) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

struct Compared {
  uint64_t replayed = 0;
  uint64_t recorded = 0;
};

struct KindTimes {
  uint64_t calls = 0;
  Compared inside;  // nanoseconds in the plugin
};

// The waits of a rank on one comm: from post to done, or to be connected.
struct CommWait {
  int rank = -1;
  int peer = -1;
  uint64_t comm = 0;
  uint64_t requests = 0;
  bool receives = false;
  Compared nanoseconds;
};
constexpr size_t kTopWaits = 4;

struct Times {
  std::array<KindTimes, trace::kKinds> kinds{};
  Compared sends;  // nanoseconds from post to done, of all
  Compared receives;
  Compared collectives;
  Compared oneSided;
  Compared connecting;
  Compared notNow;  // calls
  Compared notNowNanoseconds;
  Compared wall;
  uint64_t messages = 0;  // received and checked
  uint64_t bytes = 0;
  uint64_t puts = 0;  // of other ranks, compared
  uint64_t putBytes = 0;
  uint64_t brokenComms = 0;  // ended by an abort
  std::array<CommWait, kTopWaits> top{};

  void add(const Times& other);
  void addWait(const CommWait& wait);
};

}  // namespace weft::replay
