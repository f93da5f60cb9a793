// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <utility>

#include "src/base/clock.h"

// The network card of a rail, where works take time (LoopOptions::cards). It is busy with one work at a time
// in each direction, so a sender's works queue up behind each other, and those of many senders do at the
// receiver they share. Time is that of the clock it was given. All cards that reach each other belong to one
// thread, which the Queues that use them do, too.
namespace weft::loop {

struct CardSpeed {
  double bytesPerNs = 0;  // in each direction; 0: bytes take no time
  Nanoseconds latency{};  // from card to card, and of the acknowledgement back
  Nanoseconds perWork{};  // that a work occupies either card with beside its bytes
};

class Card {
 public:
  // A time at which the owner of the card's Queues finds something new in them.
  using Tell = std::function<void(TimePoint when)>;

  Card(const Clock& clock, const CardSpeed& speed, Tell tell)
      : clock_(clock), speed_(speed), tell_(std::move(tell)) {}

  TimePoint now() const { return clock_.now(); }
  Nanoseconds latency() const { return speed_.latency; }
  void setRate(double bytesPerNs) { speed_.bytesPerNs = bytesPerNs; }  // of works from the next one on
  void tell(TimePoint when) const { tell_(when); }

  struct Journey {
    TimePoint left;    // all of it has left the sender's card
    TimePoint landed;  // all of it is in the target's memory
  };
  // Takes a work now. The target's card is occupied as soon as the first bytes come, at the slower rate.
  Journey carry(Card& to, size_t bytes);

 private:
  Nanoseconds timeFor(size_t bytes) const;
  TimePoint occupy(TimePoint comes, Nanoseconds length);  // until when

  const Clock& clock_;
  CardSpeed speed_;
  const Tell tell_;
  TimePoint sendsUntil_{};
  std::map<TimePoint, TimePoint> receives_;  // from when until when it is occupied, apart from each other
};

}  // namespace weft::loop
