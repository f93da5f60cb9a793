// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/card.h"

#include <algorithm>
#include <iterator>

namespace weft::loop {

Nanoseconds Card::timeFor(size_t bytes) const {
  if (speed_.bytesPerNs <= 0) return speed_.perWork;
  return speed_.perWork + Nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) / speed_.bytesPerNs));
}

// A switch does not store what it forwards, so a work that meets nobody takes its bytes' time once.
Card::Journey Card::carry(Card& to, size_t bytes) {
  const TimePoint begins = std::max(now(), sendsUntil_);
  sendsUntil_ = begins + timeFor(bytes);
  const TimePoint received = to.occupy(begins + speed_.latency, to.timeFor(bytes));
  return {sendsUntil_, std::max(received, sendsUntil_ + speed_.latency)};
}

// Works are posted in another order than they come: a sender may still be busy with an older one. So a work
// takes the first pause that it fits into. Nothing comes any more at a time that has passed.
TimePoint Card::occupy(TimePoint comes, Nanoseconds length) {
  while (!receives_.empty() && receives_.begin()->second <= now()) receives_.erase(receives_.begin());
  auto next = receives_.upper_bound(comes);
  if (next != receives_.begin()) comes = std::max(comes, std::prev(next)->second);
  for (; next != receives_.end() && next->first < comes + length; ++next) comes = next->second;
  const TimePoint end = comes + length;
  if (length.count() == 0) return end;
  TimePoint until = end;
  if (next != receives_.end() && next->first == end) {
    until = next->second;
    next = receives_.erase(next);
  }
  if (next != receives_.begin() && std::prev(next)->second == comes)
    std::prev(next)->second = until;
  else
    receives_.emplace_hint(next, comes, until);
  return end;
}

}  // namespace weft::loop
