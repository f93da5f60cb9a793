// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <vector>

#include "providers/verbs/queue_pair.h"
#include "src/base/clock.h"

// Queue pairs whose lane is gone. A queue pair takes receives from the shared receive queue, and each comes
// back as an entry of the completion queue. Entries that were not read when the queue pair is destroyed are
// lost, and with enough of them lost every peer waits for ever. So a queue pair goes to ERR first. It stays
// until the card has said that it took its last receive (IBV_EVENT_QP_LAST_WQE_REACHED,
// ibv_get_async_event(3)) and the completion queue was read to its end after that. A card that does not say
// so gets kPatience. The Queue owns it; its thread uses it. Queue pairs that are here when the Queue goes are
// destroyed with it.
namespace weft::verbs {

class Dialer;

class LeavingPairs {
 public:
  static constexpr Milliseconds kPatience{250};

  bool empty() const { return leaving_.empty(); }
  // `requests`: the part of the Queue's room that its outstanding works hold until then.
  void add(std::shared_ptr<QueuePair> pair, size_t requests, TimePoint now);
  void tookLast(uint32_t queuePair);
  // The completion queue was read to its end. Returns the room that is free again. `gone`: takes the queue
  // pairs that have nothing left to say.
  size_t drained(TimePoint now, Dialer& gone);

 private:
  struct Leaving {
    std::shared_ptr<QueuePair> pair;
    size_t requests;
    TimePoint until;
  };
  std::vector<Leaving> leaving_;
};

}  // namespace weft::verbs
