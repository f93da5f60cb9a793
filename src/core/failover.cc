// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/failover.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"

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

Failover::Failover(EngineParts& parts, PathOwner& owner, Talk& talk, LaneSet& lanes, EagerSender& eagerOut,
                   const EagerReceiver& eagerIn)
    : parts_(parts), owner_(owner), talk_(talk), lanes_(lanes), eagerOut_(eagerOut), eagerIn_(eagerIn) {}

Lane* Failover::laneNamed(uint8_t number) const {
  return number < lanes_.size() ? &lanes_.at(number) : nullptr;
}

// Leaving:

void Failover::begin(Lane& lane) {
  WEFT_LOG(warn, "%s is left to the other rails: %s", talk_.where(lane).c_str(), lane.cause().c_str());
  if (!talk_.opening()) tellLeft(lane);
}

void Failover::tellLeft(const Lane& lane) {
  if (recordOf(lane).talk < PeerTalk::left)
    tell(MessageType::laneRetire, LaneMessage{lane.number(), lane.incarnation(), lane.cause(), {}});
}

// A peer that has not looked at our half yet takes no word about a lane of it, so what was lost before is
// told now.
void Failover::onHalfHere() {
  for (size_t i = 0; i < lanes_.size(); i++) {
    Lane& lane = lanes_.at(i);
    if (lane.state() != LaneState::retiring && lane.state() != LaneState::fenced) continue;
    tellLeft(lane);
    if (lane.state() == LaneState::fenced) onFenced(lane);
  }
}

// It is there, so nothing has to be asked.
void Failover::peerLeft(Lane& lane, const std::string& why) {
  if (lane.state() > LaneState::suspected) return;
  Record& record = recordOf(lane);
  record.talk = std::max(record.talk, PeerTalk::left);
  lanes_.lose(lane, talk_.peerName() + " left it" + why);
}

bool Failover::onLaneRetire(const LaneMessage& message) {
  Lane* lane = laneNamed(message.lane);
  if (!lane) return false;
  if (message.incarnation == lane->incarnation()) {
    peerLeft(*lane, ": " + message.reason);
  } else if (message.incarnation == lane->incarnation() + 1) {
    recordOf(*lane).givenUp = message.incarnation;
    if (lane->state() == LaneState::accounted) skipNext(*lane);
  }
  return true;
}

// The peer left an incarnation that this side never had, so there is nothing to fence.
void Failover::skipNext(Lane& lane) {
  Record& record = recordOf(lane);
  record.nextAddress.clear();
  lanes_.skip(lane);
  tell(MessageType::laneRetired, RetiredMessage{lane.number(), lane.incarnation(), false, {}});
}

void Failover::onFenced(Lane& lane) {
  if (talk_.opening()) return;
  listOwn(lane);
  if (recordOf(lane).talk >= PeerTalk::listed) parts_.wantAfterPoll();
}

// Everything that left by this lane has completed by now, so what is not known to have landed may be lost.
void Failover::listOwn(Lane& lane) {
  Record& record = recordOf(lane);
  std::vector<Suspect> list;
  talk_.eachSend([&](const Request& request, uint32_t remoteComm) {
    uint16_t mask = 0;
    for (unsigned i = 0; i < request.segmentCount; i++) {
      const SegmentInFlight& segment = request.segments[i];
      if (segment.lane == lane.number() && !segment.done) mask |= static_cast<uint16_t>(1u << i);
    }
    if (mask == 0 || request.remaining == 0) return;
    record.own.push_back({request.index, request.generation, mask, -1});
    list.push_back({remoteComm, request.transfer.slot, static_cast<uint32_t>(request.tags[0]),
                    request.sequence[0], mask});
  });
  eagerOut_.eachUnreturned(lane.number(), [&](int slot) {
    record.own.push_back({0, 0, 1, slot});
    list.push_back({0, static_cast<uint32_t>(slot) | eagerOut_.use(slot) << kSuspectUseShift, 0, 0, 1});
  });
  RetiredMessage message{lane.number(), lane.incarnation(), false, {}};
  inChunks(list, kMostSuspects, [&](size_t first, std::vector<Suspect> chunk) {
    message.more = first + chunk.size() < list.size();
    message.suspects = std::move(chunk);
    tell(MessageType::laneRetired, message);
  });
  if (list.empty()) tell(MessageType::laneRetired, message);
}

bool Failover::onLaneRetired(RetiredMessage& message) {
  Lane* lane = laneNamed(message.lane);
  if (!lane) return false;
  if (message.incarnation != lane->incarnation() || lane->state() == LaneState::accounted) return true;
  Record& record = recordOf(*lane);
  if (record.talk >= PeerTalk::listed || record.theirs.size() > kMostListed) return false;
  peerLeft(*lane, "");
  record.theirs.insert(record.theirs.end(), message.suspects.begin(), message.suspects.end());
  if (message.more) return true;
  record.talk = PeerTalk::listed;
  parts_.wantAfterPoll();
  return true;
}

// Both ends are fenced:

void Failover::afterPoll() {
  if (talk_.ending()) return;
  for (size_t i = 0; i < lanes_.size(); i++) {
    Lane& lane = lanes_.at(i);
    if (lane.state() == LaneState::fenced && records_[i].talk == PeerTalk::listed) answerList(lane);
  }
}

// Notifications that were on their way come out of the queue first: what they say need not be asked for.
void Failover::answerList(Lane& lane) {
  recordOf(lane).talk = PeerTalk::answered;
  owner_.drain(lane.rail());
  if (talk_.ending()) return;
  talk_.tellCts(lane);
  talk_.creditsAfterFence(lane);
  answer(lane);
  endIfAccounted(lane);
}

void Failover::answer(const Lane& lane) {
  Record& record = recordOf(lane);
  std::vector<uint16_t> masks;
  masks.reserve(record.theirs.size());
  for (const Suspect& suspect : record.theirs) masks.push_back(missingOf(suspect));
  inChunks(masks, kMostAnswers, [&](size_t first, std::vector<uint16_t> chunk) {
    tell(MessageType::missing,
         MissingMessage{lane.number(), lane.incarnation(), static_cast<uint32_t>(first), std::move(chunk)});
  });
  record.theirs.clear();
}

// A receive that is gone has all it needed. Whoever has its slot by now may even have its generation, but is
// another message.
uint16_t Failover::missingOf(const Suspect& suspect) {
  if (suspect.comm == 0) {
    const uint32_t slot = suspect.slot & ((1u << kSuspectUseShift) - 1);
    return eagerIn_.misses(slot, suspect.slot >> kSuspectUseShift, kUseMask) ? 1 : 0;
  }
  const uint32_t index = suspect.slot & (kMaxSlots - 1);
  if (!parts_.hasSlot(index)) return 0;
  ReceiveSlot& slot = parts_.slot(index);
  if (slot.state != SlotState::advertised || slot.generation != suspect.slot >> kSlotBits) return 0;
  if (!talk_.isOfComm(slot, suspect.comm)) return 0;
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
  if (message.incarnation != lane->incarnation() || lane->state() != LaneState::fenced) return true;
  if (message.first != record.answered || message.segments.size() > record.own.size() - record.answered)
    return false;
  for (const uint16_t segments : message.segments) resolve(*lane, record.own[record.answered++], segments);
  endIfAccounted(*lane);
  return true;
}

void Failover::resolve(const Lane& lane, const Own& own, uint16_t missing) {
  if (own.eagerSlot >= 0)
    return missing ? talk_.sendEagerAgain(own.eagerSlot) : eagerOut_.accounted(own.eagerSlot, lane.number());

  Request& request = parts_.requestAt(own.request);
  if (request.kind != RequestKind::send || request.generation != own.generation) return;
  owner_.resolve(&request, own.segments, missing);
}

void Failover::endIfAccounted(Lane& lane) {
  Record& record = recordOf(lane);
  if (lane.state() != LaneState::fenced || record.talk < PeerTalk::answered ||
      record.answered < record.own.size())
    return;
  lanes_.accounted(lane);
  record.own.clear();
  if (nextGivenUp(lane)) {
    skipNext(lane);
  } else if (!record.nextAddress.empty()) {
    lanes_.reopen(lane);
  }
}

// Coming back:

void Failover::onReopened(Lane& lane) {
  Record& record = recordOf(lane);
  record.talk = PeerTalk::nothing;
  record.answered = 0;
  record.own.clear();
  record.theirs.clear();
  const auto address = lane.endpoint().address();
  tell(MessageType::laneAddress,
       LaneMessage{lane.number(), lane.incarnation(), {}, Bytes(address.begin(), address.end())});
  if (!record.nextAddress.empty()) connect(lane);
}

void Failover::connect(Lane& lane) {
  const Bytes address = std::exchange(recordOf(lane).nextAddress, {});
  recordOf(lane).connected = lane.incarnation();
  if (Status status = talk_.connectLane(lane, address); !status)
    lanes_.suspect(lane, status.error().message());
}

// The peer may be through with the last incarnation before this side is; then the address waits.
bool Failover::onLaneAddress(const LaneMessage& message) {
  Lane* lane = laneNamed(message.lane);
  if (!lane || message.address.empty()) return false;
  Record& record = recordOf(*lane);
  if (message.incarnation == lane->incarnation() + 1) {
    record.nextAddress = message.address;
    if (!talk_.ending()) lanes_.reopen(*lane);
  } else if (message.incarnation == lane->incarnation() && lane->state() == LaneState::connecting) {
    if (record.connected == lane->incarnation() || lane->incarnation() == 1) return false;
    record.nextAddress = message.address;
    connect(*lane);
  }
  return true;
}

void Failover::onUp(Lane& lane) {
  if (lane.incarnation() == 1) return;
  parts_.counters().lanesRevived++;
  WEFT_LOG(info, "%s is used again", talk_.where(lane).c_str());
}

void Failover::stuck(const Lane& lane) {
  talk_.end({Ending::By::us,
             Error(Code::timeout, "leaving a rail",
                   format("%s (%s) was not accounted for by %s in time", talk_.where(lane).c_str(),
                          lane.cause().c_str(),
                          recordOf(lane).talk >= PeerTalk::listed ? "its list" : "the other end"))});
}

bool Failover::onMessage(MessageType type, ByteReader* body) {
  LaneMessage lane;
  RetiredMessage retired;
  MissingMessage missing;
  switch (type) {
    case MessageType::laneRetire:
      return decodeBody(body, &lane) && onLaneRetire(lane);
    case MessageType::laneRetired:
      return decodeBody(body, &retired) && onLaneRetired(retired);
    case MessageType::missing:
      return decodeBody(body, &missing) && onMissing(missing);
    case MessageType::laneAddress:
      return decodeBody(body, &lane) && onLaneAddress(lane);
    default:
      return false;
  }
}

}  // namespace weft::core
