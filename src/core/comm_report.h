// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/clock.h"

// What a comm waits for, in plain values: for the warning about waits that last, and for an operator who asks
// for the state of a process. Filled by who has entered the engine, read anywhere.
namespace weft::core {

// Since when one and the same message is awaited. The control thread looks about once a second, so that the
// data path pays nothing for it. An operator is told `since`. The warning goes by `counted`, which begins
// anew after each time in which the wait is no riddle: the peer's process does not answer.
class Standing {
 public:
  void seen(uint32_t k, TimePoint now, bool counts) {
    if (since_ == TimePoint{} || k_ != k) {
      k_ = k;
      since_ = now;
      counted_ = TimePoint{};
    }
    if (!counts)
      counted_ = TimePoint{};
    else if (counted_ == TimePoint{})
      counted_ = now;
  }
  void over() { since_ = counted_ = TimePoint{}; }
  TimePoint since() const { return since_; }      // default: nothing is awaited
  TimePoint counted() const { return counted_; }  // default: nothing that a warning is due for

 private:
  uint32_t k_ = 0;
  TimePoint since_{};
  TimePoint counted_{};
};

// When the longest waits began: of all, and of those that began after a certain moment.
struct OldestWaits {
  TimePoint all{};
  TimePoint later{};
  void add(TimePoint since, TimePoint after) {
    if (since == TimePoint{}) return;
    all = std::min(all, since);
    if (since > after) later = std::min(later, since);
  }
};

// The oldest message of one tag that NCCL wants and has not got, or not got rid of.
struct Wait {
  uint32_t tag = 0;
  uint32_t k = 0;  // how many of this tag came before
  uint64_t bytes = 0;
  size_t requests = 1;   // of this tag
  TimePoint since{};     // default: it began after the last look
  TimePoint counted{};   // for the warning; default: none is due
  const char* why = "";  // what has to happen
};

// A message or a receive of the other end that has no counterpart here.
struct Unmatched {
  uint32_t tag = 0;
  size_t count = 0;
};

struct CommReport {
  uint32_t number = 0;
  bool sends = false;
  std::string device;
  std::string peer;
  bool answers = true;    // the peer's process
  std::string life;       // "live", or how it ended
  uint64_t messages = 0;  // so far
  size_t inFlight = 0;    // sends that a fabric works on
  std::vector<Wait> waits;
  std::vector<Unmatched> unmatched;
};

// "receive with tag 7 of at most 65536 bytes on comm 5 from node7 pid 4711 (192.0.2.7), message 0 of the tag:
// the peer has not sent it; there is tag 8, which nobody receives".
std::string waitText(const CommReport& comm, const Wait& wait);
std::string unmatchedText(const CommReport& comm);  // empty: nothing is

// All of it, some lines.
std::string stateText(const CommReport& comm, TimePoint now);

}  // namespace weft::core
