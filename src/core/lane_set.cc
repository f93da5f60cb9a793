// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/lane_set.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"

namespace weft::core {

namespace {

constexpr uint64_t kSmallPacket = 1400;  // what passes everywhere

constexpr uint8_t bit(LaneState state) {
  return static_cast<uint8_t>(1u << static_cast<uint8_t>(state));
}

// By the state a lane is in: those it may enter.
constexpr uint8_t kNext[] = {
    bit(LaneState::up) | bit(LaneState::suspected) | bit(LaneState::retiring),  // connecting
    bit(LaneState::suspected) | bit(LaneState::retiring),                       // up
    bit(LaneState::retiring),                                                   // suspected
    bit(LaneState::fenced),                                                     // retiring
    bit(LaneState::accounted),                                                  // fenced
    bit(LaneState::connecting),                                                 // accounted
};

constexpr Milliseconds kLongestPause{30'000};

}  // namespace

void LaneSet::add(uint8_t rail, std::string railName, std::unique_ptr<Endpoint> endpoint, size_t of) {
  const auto number = static_cast<uint8_t>(count_++);
  connectingFirst_ += endpoint ? 1 : 0;
  lanes_.push_back(
      std::make_unique<Lane>(number, rail, std::move(railName), std::move(endpoint), of > 1 && !loopback_));
  lanes_.back()->standing.pause = config_.railRetry;
  only_ = of == 1 ? lanes_.front().get() : nullptr;
  if (of > 1) splitFrom_ = 2 * static_cast<uint64_t>(config_.stripeMinBytes);
}

void LaneSet::clear() {
  lanes_.clear();
  only_ = nullptr;
  splitFrom_ = UINT64_MAX;
  count_ = 0;
  up_ = connectingFirst_ = suspected_ = 0;
  prefersFirst_ = false;
}

void LaneSet::addPreferred(uint8_t rail, std::string railName, std::unique_ptr<Endpoint> endpoint) {
  const std::vector<std::unique_ptr<Lane>> others = std::exchange(lanes_, {});
  clear();
  const size_t of = others.size() + 1;
  add(rail, std::move(railName), std::move(endpoint), of);
  for (const auto& lane : others) add(lane->rail(), lane->railName(), lane->release(), of);
  prefersFirst_ = true;
}

Lane* LaneSet::find(const Endpoint* endpoint) const {
  for (const auto& lane : lanes_) {
    if (lane->isAt(endpoint)) return lane.get();
  }
  return nullptr;
}

// States:

bool LaneSet::enter(Lane& lane, LaneState to, const std::string& why) {
  const LaneState from = lane.standing.state;
  if (!(kNext[static_cast<size_t>(from)] & bit(to))) return false;
  leave(lane);
  lane.standing.state = to;
  const TimePoint now = owner_.now();
  if (!why.empty()) lane.standing.cause = why;
  if (to == LaneState::suspected) planNext(lane, from, now);
  if (to != LaneState::fenced) lane.standing.since = now;
  if (to == LaneState::up) {
    up_++;
    lane.standing.cause.clear();
    lane.restartStallClock(now);  // what waited for this moment says nothing about the lane
  }
  if (to == LaneState::suspected) suspected_++;
  if (to == LaneState::retiring) lane.startFencing();
  weigh();
  return true;
}

void LaneSet::leave(Lane& lane) {
  if (lane.standing.state == LaneState::up) {
    up_--;
    lane.standing.falters.clear();
  }
  if (lane.standing.state == LaneState::suspected) suspected_--;
  if (lane.standing.state == LaneState::connecting && lane.standing.incarnation == 1) connectingFirst_--;
}

// One that died young dies again, probably. What is young does not grow with the pause: rails that live for
// a while now and then would be left alone for longer each time.
void LaneSet::planNext(Lane& lane, LaneState from, TimePoint now) const {
  if (from == LaneState::up && now - lane.standing.since >= 10 * config_.railRetry) {
    lane.standing.pause = config_.railRetry;
  } else if (lane.standing.incarnation > 1) {
    lane.standing.pause = std::min(lane.standing.pause * 2, std::max(kLongestPause, config_.railRetry));
  }
}

void LaneSet::connected(Lane& lane, bool ok, const std::string& why) {
  if (lane.standing.state != LaneState::connecting) return;
  if (!ok) return suspect(lane, why);
  if (owner_.awaitsPeer(lane) && lane.standing.connected != StandingEnd::peers) {
    lane.standing.connected = StandingEnd::ours;
    return;
  }
  enter(lane, LaneState::up);
  owner_.laneUp(lane);
}

void LaneSet::peerStands(Lane& lane) {
  if (lane.standing.state != LaneState::connecting) return;
  const bool both = std::exchange(lane.standing.connected, StandingEnd::peers) == StandingEnd::ours;
  if (both && enter(lane, LaneState::up)) owner_.laneUp(lane);
}

// What is under way stays there: a card that goes on trying loses nothing if the trouble is short.
void LaneSet::faltering(Lane& lane, const std::string& why) {
  if (!lane.up()) return;
  if (!lane.falters()) lane.standing.faltersSince = owner_.now();
  lane.standing.falters = why;
  weigh();
}

bool LaneSet::hasSteadyBeside(const Lane& lane) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& other) {
    return other.get() != &lane && other->up() && !other->falters();
  });
}

void LaneSet::weigh() {
  for (const auto& lane : lanes_) lane->standing.avoided = lane->falters() && hasSteadyBeside(*lane);
}

void LaneSet::suspect(Lane& lane, const std::string& why) {
  if (enter(lane, LaneState::suspected, why)) owner_.laneSuspected(lane);
}

void LaneSet::lose(Lane& lane, const std::string& why) {
  if (lane.standing.state != LaneState::suspected && !enter(lane, LaneState::suspected, why)) return;
  enter(lane, LaneState::retiring);
  owner_.laneLost(lane);
}

void LaneSet::answered(TimePoint asked) {
  peerPolledAt_ = std::min(asked, owner_.now());
  for (const auto& lane : lanes_) {
    if (lane->standing.state == LaneState::suspected && lane->standing.since <= asked) lose(*lane);
  }
}

void LaneSet::fenced(Lane& lane) {
  if (enter(lane, LaneState::fenced)) owner_.laneFenced(lane);
}

void LaneSet::reopen(Lane& lane) {
  if (lane.standing.state != LaneState::accounted) return;
  auto endpoint = owner_.openEndpoint(lane.rail());
  if (!endpoint) {
    lane.standing.cause = endpoint.error().message();
    planNext(lane, LaneState::connecting, owner_.now());
    lane.standing.since = owner_.now();
    return;
  }
  lane.replace(endpoint.take(), owner_.now());
  enter(lane, LaneState::connecting);
  if (lane.standing.incarnation == 1) connectingFirst_++;
  owner_.laneReopened(lane);
}

void LaneSet::fence() {
  for (const auto& lane : lanes_) enter(*lane, LaneState::retiring);
}

bool LaneSet::isLeaving() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
    return lane->standing.state >= LaneState::suspected && lane->standing.state <= LaneState::fenced;
  });
}

bool LaneSet::isFenced() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane->standing.state >= LaneState::fenced; });
}

TimePoint LaneSet::fencingSince() const {
  TimePoint last = TimePoint{};
  for (const auto& lane : lanes_) {
    if (lane->standing.state < LaneState::fenced) last = std::max(last, lane->standing.since);
  }
  return last == TimePoint{} ? TimePoint::max() : last;
}

bool LaneSet::upOn(size_t rail) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [&](const auto& lane) { return lane->up() && lane->rail() == rail; });
}

bool LaneSet::upWithout(size_t rail) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [&](const auto& lane) { return lane->up() && lane->rail() != rail; });
}

bool LaneSet::tickBusy() {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
    return lane->waiting() || lane->standing.state == LaneState::connecting || lane->tickLingering();
  });
}

Nanoseconds LaneSet::patience() const {
  Nanoseconds most = config_.laneTimeout;
  for (const auto& lane : lanes_)
    most = std::max(most, patienceWith(config_, owner_.retriesOf(lane->rail())));
  return most;
}

std::string LaneSet::causes() const {
  std::string text;
  for (const auto& lane : lanes_) {
    if (lane->up()) continue;
    text += (text.empty() ? "rail " : "; rail ") + lane->railName() + ": " +
            (lane->standing.cause.empty() ? "not connected" : lane->standing.cause);
  }
  return text;
}

std::string LaneSet::railNames() const {
  std::string names;
  for (const auto& lane : lanes_) names += (names.empty() ? "" : ", ") + lane->railName();
  return names;
}

// What takes too long:

void LaneSet::watch(TimePoint now, bool settled, bool mayReopen) {
  for (const auto& lane : lanes_) {
    switch (lane->standing.state) {
      case LaneState::connecting:
        watchConnecting(*lane, now);
        break;
      case LaneState::up:
        watchFaltering(*lane, now);
        if (lane->up()) watchSilence(*lane, now, settled);
        break;
      case LaneState::suspected:
        if (now - lane->standing.since >= kSuspicion) lose(*lane);
        break;
      case LaneState::retiring:
      case LaneState::fenced:
        watchFencing(*lane, now, settled);
        break;
      case LaneState::accounted:
        if (mayReopen && now - lane->standing.since >= lane->standing.pause) reopen(*lane);
        break;
    }
  }
}

// The deadline of the first connection is the peering's own. A rail that carries nothing is left to the
// others when those have stood for half of that, or no connection would ever stand.
void LaneSet::watchConnecting(Lane& lane, TimePoint now) {
  const bool first = lane.standing.incarnation == 1;
  if (first && up_ == 0) return;
  if (lane.standing.since == TimePoint{}) lane.standing.since = now;
  if (now - lane.standing.since > config_.connectTimeout / (first ? 2 : 1))
    suspect(lane, first ? "no connection within half of WEFT_CONNECT_TIMEOUT, while others stand"
                        : "no connection within WEFT_CONNECT_TIMEOUT");
}

// Where another lane is steady, this one is left after a while, so that what it holds goes over that. A
// shorter trouble passes. Where all falter, each may still come back, and its card has the last word. A
// loopback lane has no substitute: it is made anew when nothing waits for it.
void LaneSet::watchFaltering(Lane& lane, TimePoint now) {
  if (!lane.falters() || (loopback_ ? lane.waiting() : !hasSteadyBeside(lane))) return;
  const Nanoseconds bound = std::min(config_.railTimeout, config_.laneTimeout / 2);
  if (now - lane.standing.faltersSince < bound) return;
  const std::string why = lane.standing.falters;
  suspect(lane, why);
}

// A lane that holds work of ours and shows no sign of life is lost, unless the peer's whole process is
// silent: then the control link decides. While others are up it is left sooner, if the peer's engine polls
// meanwhile. Every byte outstanding buys time, so a slow rail is not mistaken for a dead one.
void LaneSet::watchSilence(Lane& lane, TimePoint now, bool settled) {
  const TimePoint since = settled ? lane.stalledSince(now) : TimePoint{};
  if (since == TimePoint{}) return lane.restartStallClock(now);
  const bool last = loopback_ || !hasSteadyBeside(lane);
  const CardRetries card = owner_.retriesOf(lane.rail());
  const Nanoseconds bound = last ? patienceWith(config_, card) : railPatienceWith(config_, card);
  if (now - since < bound / 2) return;
  if (!last) owner_.askPeer(now);
  if (now - since < bound + slowest(lane.outstandingBytes())) return;
  if (!last && peerPolledAt_ < since + bound / 2) return;
  const auto silent = static_cast<long long>(std::chrono::duration_cast<Milliseconds>(now - since).count());
  if (loopback_) return suspect(lane, format("nothing came back for %lld ms", silent));
  const char* hint = lane.outstandingBytes() <= kSmallPacket
                         ? ""
                         : "; if small messages pass, check that everything on the "
                           "way carries packets as large as the card's MTU";
  suspect(lane, format("nothing moved for %lld ms with %llu bytes posted, though the peer answers%s", silent,
                       static_cast<unsigned long long>(lane.outstandingBytes()), hint));
}

// The peer's process answers and does not say what it must: nothing more can be promised to anybody.
void LaneSet::watchFencing(Lane& lane, TimePoint now, bool settled) {
  if (!settled) lane.standing.since = now;
  if (now - lane.standing.since >= config_.laneTimeout + config_.closeTimeout) owner_.laneStuck(lane);
}

// Choosing:

uint32_t LaneSet::nextTurn() {
  const uint32_t turn = turn_;
  if (++turn_ == lanes_.size()) endRound();
  return turn;
}

void LaneSet::endRound() {
  turn_ = 0;
  fastest_ = 0;
  for (const auto& lane : lanes_) {
    lane->countRound();
    fastest_ = std::max(fastest_, lane->load().bytesPerUs);
  }
}

// Mostly the lane whose turn it is has nothing to do, and is as good as any. For little even one is that is
// slow, or has a little more to do: what takes its time then is the way, not the bytes.
Lane& LaneSet::quickestOfSeveral(uint64_t bytes) {
  constexpr uint64_t kLittle = 4 << 10;
  constexpr uint32_t kFewWorks = 8;  // and no more: of a lane that is stuck nobody knows yet
  if (firstCarriesAll()) return *lanes_.front();
  const uint32_t turn = nextTurn();
  Lane& next = *lanes_[turn];
  const bool good = bytes <= kLittle ? next.isFree(kFewWorks, fastest_ / 4) : next.isFree(0, fastest_ * 0.9f);
  return good ? next : quickestByLoad(bytes, turn);
}

// A lane of unknown rate is taken for the fastest. Where none is up a suspected one, which drops what it is
// given and lists it as lost; else one that connects, which keeps it until it is up. Where there is none
// either the peering is over, and any will do.
Lane& LaneSet::quickestByLoad(uint64_t bytes, uint32_t turn) {
  const auto loadOf = [this](size_t i) { return lanes_[i]->load(); };
  const int quickest = quickestLane(lanes_.size(), loadOf, bytes, fastest_ > 0 ? fastest_ : 1, turn);
  if (quickest >= 0) return *lanes_[static_cast<size_t>(quickest)];
  for (const LaneState state : {LaneState::suspected, LaneState::connecting}) {
    for (const auto& lane : lanes_)
      if (lane->standing.state == state) return *lane;
  }
  return *lanes_.front();
}

// Where no lane is up it stays whole, on the one that any other message would be given to.
size_t LaneSet::split(uint64_t bytes, std::array<Segment, kMaxSegments>* out) {
  size_t count = 0;
  if (!firstCarriesAll()) {
    LaneLoad loads[kMaxLanes];
    for (size_t i = 0; i < lanes_.size(); i++) loads[i] = lanes_[i]->load();
    count = planSegments(std::span(loads, lanes_.size()), bytes, splitFrom_ / 2, nextTurn(), *out);
  }
  if (count > 0) return count;
  (*out)[0] = {quickestOfSeveral(bytes).number(), 0, bytes};
  return 1;
}

bool LaneSet::hasQueued() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->hasQueued(); });
}

bool LaneSet::flush(TimePoint now) {
  bool more = false;
  for (const auto& lane : lanes_) more |= lane->hasQueued() && lane->up() && lane->flush(now);
  return more;
}

}  // namespace weft::core
