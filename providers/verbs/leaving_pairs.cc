// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/leaving_pairs.h"

#include <utility>

#include "providers/verbs/dialer.h"

// The list of queue pairs that wait for their last receive.
namespace weft::verbs {

void LeavingPairs::add(std::shared_ptr<QueuePair> pair, size_t requests, TimePoint now) {
  pair->fail();
  leaving_.push_back({std::move(pair), requests, now + kPatience});
}

void LeavingPairs::tookLast(uint32_t queuePair) {
  for (Leaving& one : leaving_)
    if (one.pair->number() == queuePair) one.pair->noteLastTaken();
}

size_t LeavingPairs::drained(TimePoint now, Dialer& gone) {
  size_t free = 0;
  std::erase_if(leaving_, [&](Leaving& one) {
    if (!one.pair->tookLast() && now < one.until) return false;
    free += one.requests;
    gone.bury(std::move(one.pair));
    return true;
  });
  return free;
}

}  // namespace weft::verbs
