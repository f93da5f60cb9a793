// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/core/growing_ring.h"
#include "src/core/stripe.h"
#include "weft/transport.h"

// One endpoint to one peer engine over one rail, with what has to be known to choose it and to blame it. The
// one owner of a rail's health as seen from this peering. Its LaneSet owns it, and alone moves its state.
// Used only by who has entered the engine.
namespace weft::core {

constexpr uint8_t kNoLane = UINT8_MAX;  // in the place of a lane's number

enum class LaneState : uint8_t {
  connecting,
  up,
  suspected,  // something is wrong with it: it is given nothing more, and the peer is asked before it is lost
  retiring,   // it is lost, and our endpoint is being fenced
  fenced,     // it is; the peer has not accounted for everything yet
  accounted,  // nothing of this incarnation is unaccounted for: the next one may begin
};

// What a lane that moves at all needs for so much, at most: large messages get more time before it is blamed.
inline Nanoseconds slowest(uint64_t bytes) {
  constexpr uint64_t kBytesPerSecond = 10'000'000;
  return std::chrono::seconds(bytes / kBytesPerSecond);
}

// How long a work may stay without effect on a lane before that is called dead. A card that will send again
// by itself gets the time for all its tries, and a quarter more, as it measures that time roughly.
inline Nanoseconds patienceWith(const Config& config, const CardRetries& card) {
  return std::max<Nanoseconds>(config.laneTimeout, card.all + card.all / 4);
}

// The same while another lane is left to take over: three tries of the card. A card may take four times as
// long as it was told for each (InfiniBand specification, volume 1, 9.7.6.1.3), so that there is time for
// five of the nominal length.
inline Nanoseconds railPatienceWith(const Config& config, const CardRetries& card) {
  const Nanoseconds set = std::min(config.railTimeout, config.laneTimeout / 2);
  return std::min(std::max<Nanoseconds>(set, 5 * card.first), patienceWith(config, card));
}

// What a lane that has others beside it did so far, over all its incarnations.
struct LaneTotals {
  uint64_t works = 0, bytes = 0;            // finished: messages' segments and, with several lanes, CTS
  uint64_t worksAgain = 0, bytesAgain = 0;  // of those, written again after another lane had lost them
};

// Which of a lane's two ends has said that it stands, while the other one has not.
enum class StandingEnd : uint8_t { neither, ours, peers };

// Where a lane stands. Its LaneSet writes this, and nobody else.
struct LaneStanding {
  LaneState state = LaneState::connecting;
  uint32_t incarnation = 1;
  std::string cause{};    // why it is not up; empty: it has not connected yet
  TimePoint since{};      // it is in this state, or not up any more for one that is being fenced
  Milliseconds pause{0};  // before the next incarnation
  StandingEnd connected = StandingEnd::neither;  // of one that connects
  bool avoided = false;                          // it falters, and another one does not
  std::string falters{};                         // why nothing passes for now; empty: it does
  TimePoint faltersSince{};
};

class Lane {
 public:
  // `measured`: there are others to choose from, so its rate matters, and what it carried. Without an
  // endpoint it waits for its first one.
  Lane(uint8_t number, uint8_t rail, std::string railName, std::unique_ptr<Endpoint> endpoint, bool measured)
      : endpoint_(std::move(endpoint)),
        railName_(std::move(railName)),
        number_(number),
        rail_(rail),
        measured_(measured) {
    if (!endpoint_) standing = {LaneState::accounted, 0};
  }

  Endpoint& endpoint() { return *endpoint_; }
  bool isAt(const Endpoint* endpoint) const { return endpoint_.get() == endpoint; }
  uint8_t number() const { return number_; }
  uint8_t rail() const { return rail_; }  // of this side's device
  const std::string& railName() const { return railName_; }
  uint32_t incarnation() const { return standing.incarnation; }
  LaneState state() const { return standing.state; }
  bool up() const { return standing.state == LaneState::up; }

  const std::string& cause() const { return standing.cause; }
  bool falters() const { return !standing.falters.empty(); }
  bool carries() const { return up() && !standing.avoided; }  // it is chosen for new work

  // Hands one work to the fabric, at once unless others wait already or `more` follow that should go with it
  // as one burst. False: it is queued, and flush must be called. What a connecting lane is given waits until
  // it is up. Any other lane that is not up drops it: a suspected one lists it as lost when it is fenced,
  // behind the rest the peering is over.
  // `clock.now()` is asked only when the lane was idle, and measured.
  template <class Clock>
  bool submit(const Work& work, bool more, Clock& clock) {
    if (!up()) [[unlikely]]
      return standing.state != LaneState::connecting || hold(work, clock);
    if (!work.unsignaled) {
      // That a fabric takes works is no sign of life: a dead one may go on taking them.
      if (outstandingWorks_++ == 0) beginWindow(clock);
      outstandingBytes_ += work.length;
    } else {
      lingers_ = kLingerTicks;
    }
    if (!more && queued_.empty() && endpoint_->post({&work, 1}) == 1) [[likely]]
      return true;
    queued_.push(work);
    return false;
  }
  bool flush(TimePoint now);  // true: some is left for later
  bool hasQueued() const { return !queued_.empty(); }

  // A completion of `bytes` came back.
  template <class Clock>
  void finished(uint64_t bytes, Clock& clock) {
    if (outstandingWorks_ > 0) outstandingWorks_--;
    outstandingBytes_ -= std::min(outstandingBytes_, bytes);
    peerSeen_ = true;
    if (!measured_) {
      signSinceWatch_ = true;
      return;
    }
    lastSign_ = clock.now();
    totals_.works++;
    totals_.bytes += bytes;
    measure(bytes, lastSign_);
  }
  // A work that is outstanding is of no interest any more: its completion will name no bytes.
  void writeOff(uint64_t bytes) { outstandingBytes_ -= std::min(outstandingBytes_, bytes); }
  void carriesAgain(uint64_t bytes) { totals_.worksAgain++, totals_.bytesAgain += bytes; }
  const LaneTotals& totals() const { return totals_; }
  LaneTotals untold() {  // since this was asked last
    const LaneTotals before = std::exchange(told_, totals_);
    return {totals_.works - before.works, totals_.bytes - before.bytes,
            totals_.worksAgain - before.worksAgain, totals_.bytesAgain - before.bytesAgain};
  }

  bool waiting() const { return !queued_.empty() || outstandingWorks_ > 0; }  // for something to finish
  // Nobody hears of it when an unsignaled work is gone, but a fabric may need polls until it is: so the
  // control thread asks this with each tick on which nothing else kept it busy, and is told to come back a
  // while.
  bool tickLingering() { return lingers_ > 0 && lingers_-- > 0; }
  // Since when work has been waiting without any sign of life from the lane; default TimePoint: nothing is
  // waiting. A lane that is not measured reads no clock for its signs: they count as of the next such call.
  TimePoint stalledSince(TimePoint now);
  void restartStallClock(TimePoint now) { lastSign_ = now; }
  // Something of ours was completed or something of the peer's notified since the last call: its fabric
  // works.
  bool takePeerSeen() { return std::exchange(peerSeen_, false); }
  bool notePeerSeen() { return peerSeen_ = true; }
  uint64_t outstandingBytes() const { return outstandingBytes_; }
  // A rate that was not measured for so many rounds of all lanes is forgotten: what made the lane slow once
  // may be gone, and a lane that is given nothing would not show it.
  void countRound() {
    if (++roundsSinceMeasured_ >= kRoundsRemembered) bytesPerUs_ = 0;
  }
  // No more works are outstanding, and it is not known to be slower than that, in bytes per microsecond.
  bool isFree(uint32_t works, float rate) const {
    return carries() && outstandingWorks_ <= works && (bytesPerUs_ >= rate || bytesPerUs_ == 0);
  }
  LaneLoad load() const { return {carries(), outstandingBytes_, bytesPerUs_}; }

  // For its LaneSet alone:
  void replace(std::unique_ptr<Endpoint> endpoint, TimePoint now);  // for the next incarnation: idle
  void startFencing();
  std::unique_ptr<Endpoint> release() {
    return std::move(endpoint_);
  }  // it was given nothing, and is dropped
  LaneStanding standing;

 private:
  static constexpr uint32_t kRoundsRemembered = 256;
  static constexpr uint8_t kLingerTicks = 128;  // of 2 ms
  template <class Clock>
  [[gnu::noinline]] bool hold(const Work& work, Clock& clock) {  // false: it is queued
    if (!work.unsignaled) {
      if (outstandingWorks_++ == 0) beginWindow(clock);
      outstandingBytes_ += work.length;
    }
    queued_.push(work);
    return false;
  }
  template <class Clock>
  void beginWindow(Clock& clock) {
    if (!measured_) {
      signSinceWatch_ = true;
      return;
    }
    lastSign_ = windowStart_ = clock.now();
    windowBytes_ = 0;
  }
  void measure(uint64_t bytes, TimePoint now);

  std::unique_ptr<Endpoint> endpoint_;
  std::string railName_;
  GrowingRing<Work> queued_;
  uint64_t outstandingBytes_ = 0;
  uint32_t outstandingWorks_ = 0;  // those with a completion to come
  uint64_t windowBytes_ = 0;       // finished in the current measuring window
  TimePoint windowStart_{};        // of one that is under way when works are outstanding
  TimePoint lastSign_{};  // last time the fabric finished something, took what had waited, or the lane
                          // stopped being idle
  LaneTotals totals_;
  LaneTotals told_;
  float bytesPerUs_ = 0;  // 0: not known
  uint32_t roundsSinceMeasured_ = 0;
  uint8_t number_;
  uint8_t rail_;
  bool measured_;
  bool signSinceWatch_ = false;
  bool peerSeen_ = false;  // since takePeerSeen()
  uint8_t lingers_ = 0;
};

}  // namespace weft::core
