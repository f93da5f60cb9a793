// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>

#include "src/base/clock.h"

// How long a closing call waits for a peer. The time runs only while this process does: where a look comes
// late, the process was stopped or starved, which says nothing about the peer. Of such a gap an eighth of the
// whole time is counted, so that the wait ends in any case. A value of its caller's; one thread.
namespace weft::core {

class Patience {
 public:
  Patience(const Clock& clock, Nanoseconds time)
      : clock_(clock), left_(time), mostAtOnce_(time / 8), lookedAt_(clock.now()) {}

  bool isOver() {
    const TimePoint now = clock_.now();
    left_ -= std::min(now - lookedAt_, mostAtOnce_);
    lookedAt_ = now;
    return left_ < Nanoseconds(0);
  }

 private:
  const Clock& clock_;
  Nanoseconds left_;
  const Nanoseconds mostAtOnce_;
  TimePoint lookedAt_;
};

}  // namespace weft::core
