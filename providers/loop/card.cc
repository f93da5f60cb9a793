// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/card.h"

#include <algorithm>

namespace weft::loop {

Nanoseconds Card::timeFor(size_t bytes) const {
  if (speed_.bytesPerNs <= 0) return speed_.perWork;
  return speed_.perWork + Nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) / speed_.bytesPerNs));
}

// A switch does not store what it forwards, so a work that meets nobody takes its bytes' time once.
Card::Journey Card::carry(Card& to, size_t bytes) {
  const TimePoint begins = std::max(now(), sendsUntil_);
  sendsUntil_ = begins + timeFor(bytes);
  const TimePoint comes = std::max(begins + speed_.latency, to.receivesUntil_);
  to.receivesUntil_ = std::max(comes + to.timeFor(bytes), sendsUntil_ + speed_.latency);
  return {sendsUntil_, to.receivesUntil_};
}

}  // namespace weft::loop
