// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/bond.h"

#include <algorithm>

// Alarms and goodbyes, read and written over the pipes of a group.
namespace weft::coll {

void Bond::enter(State next, const End& from) {
  if (next <= state_) return;
  state_ = next;
  rank_ = from.rank;
  if (next == State::alarmed) alarm_ = from.pipe->alarm();
  if (next == State::broken) fault_ = from.pipe->errorOf(from.pipe->receiving()).detail();
}

Bond::State Bond::look() {
  for (const End& end : ends_) switch (end.pipe->look()) {
      case Pipe::State::open:
        break;
      case Pipe::State::left:
        enter(State::parting, end);
        break;
      case Pipe::State::broken:
        enter(State::broken, end);
        break;
      case Pipe::State::alarmed:
        enter(State::alarmed, end);
        break;
    }
  return state_;
}

void Bond::say(const Alarm& alarm) {
  const Bytes message = alarm.encode();
  for (const End& end : ends_) end.pipe->raiseAlarm(message);
}

void Bond::repeat() {
  for (const End& end : ends_) end.pipe->repeatAlarm();
}

void Bond::awaitGoodbyes(const Clock& clock, Milliseconds most) {
  Patience patience(clock, most);
  const auto unfinished = [](const End& end) {
    return end.pipe->look() == Pipe::State::open || end.pipe->isSaying();
  };
  while (!patience.over() && std::any_of(ends_.begin(), ends_.end(), unfinished)) patience.pause();
}

}  // namespace weft::coll
