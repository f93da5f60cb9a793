// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/failover.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "src/core/engine.h"
#include "src/core/recv_comm.h"
#include "src/core/send_comm.h"

namespace weft::core {

namespace {

constexpr size_t kMostAnswers = 16'000;          // in one message
constexpr size_t kMostListed = size_t{1} << 21;  // by an honest peer: every request it can have
constexpr uint32_t kUseMask = UINT32_MAX >> kSuspectUseShift;

template <class Item, class Send>
void inChunks(const std::vector<Item>& items, size_t most, Send send) {
  for (size_t first = 0; first < items.size(); first += most)
    send(first,
         std::vector<Item>(items.begin() + static_cast<ptrdiff_t>(first),
                           items.begin() + static_cast<ptrdiff_t>(std::min(items.size(), first + most))));
}

}  // namespace

Failover::Failover(Engine& engine, Peering& peering) : engine_(engine), peering_(peering) {
  for (Record& record : records_) record.pause = engine.config().railRetry;
}

Lane* Failover::laneNamed(uint8_t number) const {
  return number < peering_.laneCount() ? &peering_.lane(number) : nullptr;
}

bool Failover::recovering() const {
  for (size_t i = 0; i < peering_.laneCount(); i++) {
    const LaneState state = peering_.lane(i).state();
    if (state == LaneState::retiring || state == LaneState::retired) return true;
  }
  return false;
}

std::string Failover::causes() const {
  std::string text;
  for (size_t i = 0; i < peering_.laneCount(); i++) {
    if (peering_.lane(i).up()) continue;
    text += (text.empty() ? "rail " : "; rail ") + peering_.lane(i).railName() + ": " +
            (records_[i].cause.empty() ? "not connected" : records_[i].cause);
  }
  return text;
}

// Leaving:

void Failover::begin(Lane& lane, const std::string& why, bool tellPeer) {
  Record& record = recordOf(lane);
  const TimePoint now = engine_.now();
  // One that died young dies again, probably. What is young does not grow with the pause: rails that live for
  // a while now and then would be left alone for longer each time.
  if (record.upAt == TimePoint{} || now - record.upAt < 10 * engine_.config().railRetry) {
    if (lane.incarnation() > 1) lengthenPause(record);
  } else {
    record.pause = engine_.config().railRetry;
  }
  record.upAt = TimePoint{};
  record.cause = why;
  record.leftAt = now;
  engine_.counters().lanesLeft++;
  record.unsaid = true;
  if (tellPeer) {
    peering_.tell(MessageType::laneRetire, LaneMessage{lane.number(), lane.incarnation(), why, {}});
  } else {
    sayLeft(lane);
  }
}

// When the peer has answered, or does not: lanes of one that is closing break before its goodbye is here,
// which is nothing to warn of.
void Failover::sayLeft(const Lane& lane) {
  Record& record = recordOf(lane);
  if (!std::exchange(record.unsaid, false)) return;
  WEFT_LOG(warn, "%s is left to the other rails: %s", peering_.where(lane).c_str(), record.cause.c_str());
}

void Failover::lengthenPause(Record& record) const {
  constexpr Milliseconds kLongest{30'000};
  record.pause = std::min(record.pause * 2, std::max(kLongest, engine_.config().railRetry));
}

bool Failover::onLaneRetire(const LaneMessage& message) {
  Lane* lane = laneNamed(message.lane);
  if (!lane) return false;
  const LaneState state = lane->state();
  if (message.incarnation == lane->incarnation() &&
      (state == LaneState::up || state == LaneState::connecting)) {
    peering_.laneFailed(*lane, peering_.peer()->name() + " left it: " + message.reason, false);
  } else if (message.incarnation == lane->incarnation() + 1) {
    recordOf(*lane).nextGivenUp = true;
    if (state == LaneState::dead) skipNext(*lane);
  }
  return true;
}

// The peer left an incarnation that this side never had, so there is nothing to fence.
void Failover::skipNext(Lane& lane) {
  Record& record = recordOf(lane);
  record.nextGivenUp = false;
  record.nextAddress.clear();
  lane.skipIncarnation();
  peering_.tell(MessageType::laneRetired, RetiredMessage{lane.number(), lane.incarnation(), false, {}});
}

void Failover::onRetired(Lane& lane) {
  if (lane.state() != LaneState::retiring) return;
  lane.setState(LaneState::retired);
  listOwn(lane);
  if (recordOf(lane).peerRetired) engine_.wantAfterPoll();
}

// Everything that left by this lane has completed by now, so what is not known to have landed may be lost.
void Failover::listOwn(Lane& lane) {
  Record& record = recordOf(lane);
  std::vector<Suspect> list;
  engine_.eachRequest([&](const Request& request) {
    if (request.kind != RequestKind::send || &request.comm->peering() != &peering_) return;
    uint16_t mask = 0;
    for (unsigned i = 0; i < request.segmentCount; i++) {
      const SegmentInFlight& segment = request.segments[i];
      if (segment.lane == lane.number() && !segment.done) mask |= static_cast<uint16_t>(1u << i);
    }
    if (mask == 0 || request.remaining == 0) return;
    record.own.push_back({request.index, request.generation, mask, -1});
    list.push_back({request.comm->remoteNumber(), request.transfer.slot,
                    static_cast<uint32_t>(request.tags[0]), request.sequence[0], mask});
  });
  peering_.eachUnreturned(lane, [&](int slot) {
    record.own.push_back({0, 0, 1, slot});
    list.push_back({0, static_cast<uint32_t>(slot) | peering_.eagerUse(slot) << kSuspectUseShift, 0, 0, 1});
  });
  RetiredMessage message{lane.number(), lane.incarnation(), false, {}};
  inChunks(list, kMostSuspects, [&](size_t first, std::vector<Suspect> chunk) {
    message.more = first + chunk.size() < list.size();
    message.suspects = std::move(chunk);
    peering_.tell(MessageType::laneRetired, message);
  });
  if (list.empty()) peering_.tell(MessageType::laneRetired, message);
}

bool Failover::onLaneRetired(RetiredMessage& message) {
  Lane* lane = laneNamed(message.lane);
  if (!lane) return false;
  if (message.incarnation != lane->incarnation() || lane->state() == LaneState::dead) return true;
  Record& record = recordOf(*lane);
  if (record.peerRetired || record.theirs.size() > kMostListed) return false;
  if (lane->state() == LaneState::up || lane->state() == LaneState::connecting)
    peering_.laneFailed(*lane, peering_.peer()->name() + " left it", false);
  sayLeft(*lane);
  record.theirs.insert(record.theirs.end(), message.suspects.begin(), message.suspects.end());
  record.peerRetired = !message.more;
  if (record.peerRetired) engine_.wantAfterPoll();
  return true;
}

// Both ends are fenced:

void Failover::afterPoll() {
  for (const uint64_t number : polledAsked_) peering_.tell(MessageType::tellPolled, CommMessage{0, number});
  polledAsked_.clear();
  if (peering_.ending()) return;
  for (size_t i = 0; i < peering_.laneCount(); i++) {
    Lane& lane = peering_.lane(i);
    if (lane.state() == LaneState::retired && records_[i].peerRetired && !records_[i].settled) settle(lane);
  }
}

// Notifications that were on their way come out of the queue first: what they say need not be asked for.
void Failover::settle(Lane& lane) {
  Record& record = recordOf(lane);
  record.settled = true;
  engine_.drain(lane.rail());
  if (peering_.ending()) return;
  engine_.eachComm([&](CommBase& comm) {
    if (&comm.peering() == &peering_ && comm.asRecv()) comm.asRecv()->tellLines(lane.number());
  });
  peering_.creditsAfterFence(lane);
  answer(lane);
  endIfAccounted(lane);
}

void Failover::answer(const Lane& lane) {
  Record& record = recordOf(lane);
  std::vector<uint16_t> masks;
  masks.reserve(record.theirs.size());
  for (const Suspect& suspect : record.theirs) masks.push_back(missingOf(suspect));
  inChunks(masks, kMostAnswers, [&](size_t first, std::vector<uint16_t> chunk) {
    peering_.tell(MessageType::missing, MissingMessage{lane.number(), lane.incarnation(),
                                                       static_cast<uint32_t>(first), std::move(chunk)});
  });
  record.theirs.clear();
}

// A receive that is gone has all it needed. Whoever has its slot by now may even have its generation, but is
// another message.
uint16_t Failover::missingOf(const Suspect& suspect) {
  if (suspect.comm == 0) {
    const uint32_t slot = suspect.slot & ((1u << kSuspectUseShift) - 1);
    return peering_.missesEager(slot, suspect.slot >> kSuspectUseShift, kUseMask) ? 1 : 0;
  }
  const uint32_t index = suspect.slot & (kMaxSlots - 1);
  if (!engine_.hasSlot(index)) return 0;
  ReceiveSlot& slot = engine_.slot(index);
  if (slot.state != SlotState::told || slot.generation != suspect.slot >> kSlotBits) return 0;
  if (slot.comm->number() != suspect.comm || &slot.comm->peering() != &peering_) return 0;
  if (slot.tag != suspect.tag || slot.k != suspect.k) return 0;
  const auto missing = static_cast<uint16_t>(suspect.segments & ~slot.arrived);
  slot.asked |= missing;
  slot.askedOdd ^= missing;
  slot.sentAt = TimePoint{};
  return missing;
}

bool Failover::onMissing(const MissingMessage& message) {
  Lane* lane = laneNamed(message.lane);
  if (!lane) return false;
  Record& record = recordOf(*lane);
  if (message.incarnation != lane->incarnation() || lane->state() != LaneState::retired) return true;
  if (message.first != record.answered || message.segments.size() > record.own.size() - record.answered)
    return false;
  for (const uint16_t segments : message.segments) resolve(*lane, record.own[record.answered++], segments);
  endIfAccounted(*lane);
  return true;
}

void Failover::resolve(const Lane& lane, const Own& own, uint16_t missing) {
  if (own.eagerSlot >= 0)
    return missing ? peering_.sendEagerAgain(own.eagerSlot) : peering_.eagerAccounted(own.eagerSlot, lane);

  Request& request = engine_.requestAt(own.request);
  if (request.kind != RequestKind::send || request.generation != own.generation) return;
  request.comm->asSend()->resolve(&request, own.segments, missing);
}

void Failover::endIfAccounted(Lane& lane) {
  Record& record = recordOf(lane);
  if (lane.state() != LaneState::retired || !record.settled || record.answered < record.own.size()) return;
  lane.setState(LaneState::dead);
  record.own.clear();
  record.reviveAt = engine_.now() + record.pause;
  if (record.nextGivenUp) {
    skipNext(lane);
  } else if (!record.nextAddress.empty()) {
    revive(lane);
  }
}

// Coming back:

// A peering that failed may be cut off, and stays so; the peer may not have heard.
void Failover::revive(Lane& lane) {
  if (peering_.ending()) return;
  Record& record = recordOf(lane);
  auto endpoint = engine_.openEndpoint(lane.rail());
  if (!endpoint) {
    record.cause = endpoint.error().message();
    lengthenPause(record);
    record.reviveAt = engine_.now() + record.pause;
    return;
  }
  lane.replace(endpoint.take(), engine_.now());
  record.connecting = record.peerRetired = record.settled = false;
  record.answered = 0;
  record.own.clear();
  record.theirs.clear();
  record.connectBy = engine_.now() + engine_.config().connectTimeout;
  const auto address = lane.endpoint().address();
  peering_.tell(MessageType::laneAddress,
                LaneMessage{lane.number(), lane.incarnation(), {}, Bytes(address.begin(), address.end())});
  if (!record.nextAddress.empty()) connect(lane);
}

void Failover::connect(Lane& lane) {
  const Bytes address = std::exchange(recordOf(lane).nextAddress, {});
  recordOf(lane).connecting = true;
  if (Status status = peering_.connectLane(lane, address); !status)
    peering_.laneFailed(lane, status.error().message());
}

// The peer may be through with the last incarnation before this side is; then the address waits.
bool Failover::onLaneAddress(const LaneMessage& message) {
  Lane* lane = laneNamed(message.lane);
  if (!lane || message.address.empty()) return false;
  Record& record = recordOf(*lane);
  if (message.incarnation == lane->incarnation() + 1) {
    record.nextAddress = message.address;
    if (lane->state() == LaneState::dead) revive(*lane);
  } else if (message.incarnation == lane->incarnation() && lane->state() == LaneState::connecting) {
    if (record.connecting || lane->incarnation() == 1) return false;
    record.nextAddress = message.address;
    connect(*lane);
  }
  return true;
}

void Failover::onUp(Lane& lane) {
  Record& record = recordOf(lane);
  record.upAt = engine_.now();
  record.cause.clear();
  if (lane.incarnation() == 1) return;
  engine_.counters().lanesRevived++;
  WEFT_LOG(info, "%s is used again", peering_.where(lane).c_str());
}

// What takes too long:

void Failover::watch(TimePoint now) {
  for (size_t i = 0; i < peering_.laneCount() && !peering_.ending(); i++) {
    Lane& lane = peering_.lane(i);
    if (lane.up()) {
      watchSilence(lane, now);
    } else if (lane.state() != LaneState::dead) {
      watchEnding(lane, now);
    } else if (now >= records_[i].reviveAt && !peering_.remoteGone()) {
      revive(lane);
    }
  }
}

void Failover::watchSilence(Lane& lane, TimePoint now) {
  const TimePoint since = peering_.peer()->settled() ? lane.stalledSince(now) : TimePoint{};
  if (since == TimePoint{}) return lane.restartStallClock(now);
  const Config& config = engine_.config();
  const bool last = peering_.lanesUp() == 1;
  const Nanoseconds bound =
      last ? Nanoseconds(config.laneTimeout)
           : std::min(Nanoseconds(config.railTimeout), Nanoseconds(config.laneTimeout) / 2);
  if (now - since < bound / 2) return;
  if (!last && askedAt_ != now) {
    askedAt_ = now;
    const auto number = static_cast<uint64_t>(now.time_since_epoch().count());
    peering_.tell(MessageType::askPolled, CommMessage{0, number});
  }
  if (now - since < bound + slowest(lane.outstandingBytes())) return;
  if (!last && polledThere_ < since + bound / 2) return;
  peering_.laneFailed(
      lane, format("nothing moved for %lld ms with %llu bytes posted, though the peer answers",
                   static_cast<long long>(std::chrono::duration_cast<Milliseconds>(now - since).count()),
                   static_cast<unsigned long long>(lane.outstandingBytes())));
}

// The peer's process answers and does not say what it must: nothing more can be promised to anybody.
void Failover::watchEnding(Lane& lane, TimePoint now) {
  Record& record = recordOf(lane);
  if (lane.state() == LaneState::connecting) {
    if (lane.incarnation() > 1 && now > record.connectBy)
      peering_.laneFailed(lane, "no connection within WEFT_CONNECT_TIMEOUT");
    return;
  }
  if (!peering_.remoteGone() && now - record.leftAt >= kDoubt) sayLeft(lane);
  if (!peering_.peer()->settled()) record.leftAt = now;
  const Config& config = engine_.config();
  if (now - record.leftAt < config.laneTimeout + config.closeTimeout) return;
  peering_.end({Ending::By::us,
                Error(Code::timeout, "leaving a rail",
                      format("%s (%s) was not accounted for by %s in time", peering_.where(lane).c_str(),
                             record.cause.c_str(), record.peerRetired ? "its list" : "the other end"))});
}

bool Failover::onMessage(MessageType type, ByteReader* body) {
  LaneMessage lane;
  RetiredMessage retired;
  MissingMessage missing;
  CommMessage plain;
  switch (type) {
    case MessageType::laneRetire:
      return decodeBody(body, &lane) && onLaneRetire(lane);
    case MessageType::laneRetired:
      return decodeBody(body, &retired) && onLaneRetired(retired);
    case MessageType::missing:
      return decodeBody(body, &missing) && onMissing(missing);
    case MessageType::laneAddress:
      return decodeBody(body, &lane) && onLaneAddress(lane);
    case MessageType::askPolled:
      if (!decodeBody(body, &plain) || polledAsked_.size() > 64) return false;
      polledAsked_.push_back(plain.number);
      engine_.wantAfterPoll();
      return true;
    default:
      return false;
  }
}

void Failover::peerPolled(uint64_t asked) {
  polledThere_ = std::min(TimePoint(Nanoseconds(static_cast<int64_t>(asked))), engine_.now());
}

}  // namespace weft::core
