// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "src/base/clock.h"

// How long one and the same message is awaited, and how long is too long. The control thread looks about
// twice a second, so that the data path pays nothing for it: a wait that no look sees is far below any limit.
// Plain values, owned by a comm or by one of its tags; used only by the thread that has entered the engine.
namespace weft::core {

// Since when a message is awaited. An operator is told `since`. The warning goes by `counted`, which begins
// anew after each time in which the wait is no riddle: the peer's process does not answer.
class Standing {
 public:
  // A wait that is over, as far as looks saw it.
  struct Ended {
    uint64_t bytes = 0;
    Nanoseconds lasted{};  // zero: there was none, or no look saw it twice
  };
  // Returns the wait before this one.
  Ended seen(uint32_t k, uint64_t bytes, TimePoint now, bool counts) {
    Ended before;
    if (since_ == TimePoint{} || k_ != k) {
      before = over(now);
      k_ = k;
      bytes_ = bytes;
      since_ = now;
    }
    if (!counts)
      counted_ = TimePoint{};
    else if (counted_ == TimePoint{})
      counted_ = now;
    return before;
  }
  // Nothing is awaited.
  Ended over(TimePoint now) {
    const Ended ended{bytes_, counted_ == TimePoint{} ? Nanoseconds{} : now - counted_};
    since_ = counted_ = TimePoint{};
    return ended;
  }
  TimePoint since() const { return since_; }      // default: nothing is awaited
  TimePoint counted() const { return counted_; }  // default: nothing that a warning is due for

 private:
  uint32_t k_ = 0;
  uint64_t bytes_ = 0;
  TimePoint since_{};
  TimePoint counted_{};
};

// The longest of a comm's last waits, by the size of their messages, and the limit that follows from them: a
// wait is worth a warning when it takes four times as long as those did, and longer than its bytes need on a
// slow path. So a job that pauses in every step is warned of once, and not in every step.
class WaitHistory {
 public:
  static constexpr Nanoseconds kShortest{3'000'000'000};
  static constexpr Nanoseconds kLongest{60'000'000'000};
  static constexpr Nanoseconds kAtFirst{10'000'000'000};  // ranks begin at different times

  void ended(const Standing::Ended& wait) {
    if (wait.lasted == Nanoseconds{}) return;
    Last& last = lasts_[classOf(wait.bytes)];
    last.waits[last.next++ % kKept] = wait.lasted;
  }
  // `bytesPerUs`: what the path is known to carry; 0: nobody measured it.
  Nanoseconds limitFor(uint64_t bytes, float bytesPerUs) const {
    const Last& last = lasts_[classOf(bytes)];
    const Nanoseconds slowest = *std::max_element(last.waits.begin(), last.waits.end());
    const float rate = bytesPerUs > 0 ? bytesPerUs / 4 : kSlowBytesPerUs;
    const Nanoseconds moving(static_cast<int64_t>(static_cast<float>(bytes) / rate * 1000));
    return std::min(std::max(kShortest, 4 * slowest) + moving, kLongest);
  }

 private:
  static constexpr float kSlowBytesPerUs = 100;
  static constexpr size_t kKept = 16;
  // Up to 4 KiB, 256 KiB, 16 MiB, and above.
  static constexpr size_t kClasses = 4;
  struct Last {
    std::array<Nanoseconds, kKept> waits{};
    uint8_t next = 0;
  };
  static size_t classOf(uint64_t bytes) {
    const auto width = static_cast<size_t>(std::bit_width(bytes));
    return width <= 13 ? 0 : width <= 19 ? 1 : width <= 25 ? 2 : 3;
  }

  std::array<Last, kClasses> lasts_{};
};

// The process at the end of a chain of waits, as far as it is known: of those in the chain the one that
// somebody waits for with the lowest message number. In a ring, where all wait for each other in the end,
// that is the one that stood still first; connections of other shapes may be counted otherwise, so a name
// that a peer tells is taken only where its number is not above that of the own wait.
struct Culprit {
  std::string name;  // empty: nobody is waited for
  uint32_t k = 0;
  bool isBefore(uint32_t other) const { return !name.empty() && static_cast<int32_t>(k - other) <= 0; }
  bool operator==(const Culprit&) const = default;
};

// One look at all waits of an engine.
struct WaitLook {
  static constexpr Nanoseconds kTellAfter{
      1'500'000'000};  // peers hear of a wait, before anybody is warned of it
  TimePoint now{};
  TimePoint after{};      // what began up to then was warned of
  bool waits = false;     // something is awaited
  bool due = false;       // for longer than its limit
  bool newlyDue = false;  // and nobody was warned of it
  TimePoint oldest{};     // the wait that began first, of those that peers hear of; default: none
  Culprit culprit;        // of it
  std::string failed;     // the peer of a connection that ended with an error; empty: none did
  bool late = false;      // a peer waits for this end, longer than a limit, and nobody was warned of it

  void add(const Standing& standing, Nanoseconds limit) {
    waits = waits || standing.since() != TimePoint{};
    if (!isDue(standing, limit)) return;
    due = true;
    newlyDue = newlyDue || standing.counted() > after;
  }
  // The oldest wait counts, and of those that one look found together the one with the lowest number.
  void blame(TimePoint since, Culprit whom) {
    const bool older = oldest == TimePoint{} || since < oldest;
    if (!older && (since != oldest || culprit.isBefore(whom.k))) return;
    oldest = since;
    culprit = std::move(whom);
  }
  // A connection that ended with an error: what waits on others follows from that.
  void blameFailed(const std::string& peer) {
    waits = true;
    if (failed.empty()) failed = peer;
  }
  void addAsked(const Standing& standing, Nanoseconds limit) {
    late = late || (isDue(standing, limit) && standing.counted() > after);
  }

 private:
  bool isDue(const Standing& standing, Nanoseconds limit) const {
    return standing.counted() != TimePoint{} && now - standing.counted() >= limit;
  }
};

}  // namespace weft::core
