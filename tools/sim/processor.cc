// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/processor.h"

#include <algorithm>

namespace weft::sim {

Nanoseconds Processor::wait(Place& place, TimePoint finds) {
  place.finds = finds;
  join(place);
  choose();
  while (next_ != &place || nextAt_ > scheduler_.now())
    scheduler_.sleepUntil(next_ == &place ? nextAt_ : TimePoint::max());
  const Nanoseconds looked = scheduler_.now() - looksSince_;
  take(place);
  return std::max(looked, Nanoseconds(0));
}

// The thread that worked has looked in vain just now, and is the last in line. Others come into a line that
// goes round already.
void Processor::join(Place& place) {
  const TimePoint now = scheduler_.now();
  if (works_ == &place) {
    works_ = nullptr;
    looksSince_ = now;
    looksFrom_ = now + (line_.empty() ? looks_.alone : looks_.amongOthers);
  } else if (!works_ && line_.empty()) {
    looksSince_ = looksFrom_ = now;
  } else if (!works_ && now > looksFrom_ && look().count() > 0) {
    const auto done = (now - looksFrom_ + look() - Nanoseconds(1)) / look();
    looksFrom_ += done * look();
    std::rotate(line_.begin(), line_.begin() + done % static_cast<int64_t>(line_.size()), line_.end());
  }
  line_.push_back(&place);
  place.state = Place::State::inLine;
}

void Processor::tell(Place& place, TimePoint when) {
  if (place.state != Place::State::inLine || when >= place.finds) return;
  place.finds = when;
  choose();
}

void Processor::leave(Place& place) {
  if (place.state != Place::State::works) return;
  place.state = Place::State::away;
  works_ = nullptr;
  looksSince_ = looksFrom_ = scheduler_.now();
  choose();
}

// The first of its looks that finds something.
TimePoint Processor::turnOf(size_t index) const {
  const TimePoint first = looksFrom_ + static_cast<int64_t>(index) * look();
  const TimePoint finds = line_[index]->finds;
  if (finds <= first) return first;
  const Nanoseconds round = static_cast<int64_t>(line_.size()) * look();
  if (finds == TimePoint::max() || round.count() == 0) return finds;
  return first + (finds - first + round - Nanoseconds(1)) / round * round;
}

void Processor::choose() {
  if (works_ || line_.empty()) return;
  next_ = nullptr;
  for (size_t i = 0; i < line_.size(); i++) {
    const TimePoint turn = turnOf(i);
    if (next_ && turn >= nextAt_) continue;
    next_ = line_[i];
    nextAt_ = turn;
  }
  scheduler_.wake(*next_->task, std::max(nextAt_, scheduler_.now()));
}

// Those behind it in the line are the next to look.
void Processor::take(Place& place) {
  const auto at = std::find(line_.begin(), line_.end(), &place);
  std::rotate(line_.begin(), at, line_.end());
  line_.pop_front();
  place.state = Place::State::works;
  works_ = &place;
  next_ = nullptr;
}

}  // namespace weft::sim
