// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/peering.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/engine.h"

namespace weft::core {

namespace {

constexpr size_t kCreditBytes = 64;  // a line of its own, so that no cache line has two writers

uint32_t slotBytesFor(int eagerMax) {
  return eagerMax == 0 ? 0 : (static_cast<uint32_t>(eagerMax) + uint32_t{sizeof(EagerHeader)} + 63) / 64 * 64;
}

}  // namespace

Peering::Peering(Engine& engine, uint32_t number, uint32_t life, control::PeerRef peer, uint32_t remoteEngine)
    : engine_(engine),
      number_(number),
      life_(life),
      peer_(std::move(peer)),
      remoteEngine_(remoteEngine),
      localEngine_(engine.id()),
      memory_(*this) {}

Peering::~Peering() {
  tellTraffic();
  if (awaitsFlush_) engine_.dropFlush(this);
  engine_.returnEagerBudget(localSlots_);
}

Result<std::unique_ptr<Peering>> Peering::create(Engine& engine, uint32_t number, uint32_t life,
                                                 control::PeerRef peer, uint32_t remoteEngine,
                                                 uint16_t remoteRails) {
  auto peering = std::make_unique<Peering>(engine, number, life, std::move(peer), remoteEngine);
  TRY(peering->takeMemory());
  TRY(peering->openLanes(remoteRails));
  return peering;
}

// The eager pool is offered only as far as the notification budget goes: every slot may fill at any time.
Status Peering::takeMemory() {
  const Config& config = engine_.config();
  localSlotBytes_ = slotBytesFor(engine_.eagerMax());
  const auto wanted = localSlotBytes_ ? static_cast<uint32_t>(config.eagerSlots) : 0;
  localSlots_ = engine_.takeEagerBudget(std::min(wanted, kEagerSlotsPerPeering));
  if (localSlots_ > 0) ownEagerRoom_ = localSlotBytes_ - sizeof(EagerHeader) + 1;
  const size_t bytes = size_t{localSlots_} * localSlotBytes_ + kCreditBytes;
  TRY(landing_, engine_.arena().take(bytes));
  TRY(staging_, engine_.arena().take(size_t{kEagerSlotsPerPeering} * localSlotBytes_ + kCreditBytes));
  std::memset(creditLanding(), 0, kCreditBytes);  // what an earlier peering left must not be believed
  return {};
}

// With one rail there is nothing to compare, and its lines and credits are not counted.
void Peering::tellTraffic() const {
  if (!failover_ || !adopted_ || !logEnabled(LogLevel::info)) return;
  const MustNotFail closing;
  std::string rails;
  for (const auto& lane : lanes_) {
    const LaneTotals& did = lane->totals();
    rails += format("%s %s: %llu writes, %llu bytes", rails.empty() ? "" : ";", lane->railName().c_str(),
                    static_cast<unsigned long long>(did.works), static_cast<unsigned long long>(did.bytes));
    if (did.worksAgain > 0) rails += format(", %llu again", static_cast<unsigned long long>(did.worksAgain));
    if (lane->incarnation() > 1) rails += format(", revived %u times", lane->incarnation() - 1);
    if (!lane->up()) rails += ", not up";
  }
  WEFT_LOG(info, "sent to %s over%s", peer_->name().c_str(), rails.c_str());
}

std::byte* Peering::creditLanding() const {
  return landing_.data() + landing_.bytes() / 64 * 64 - kCreditBytes;
}
std::byte* Peering::creditStaging() const {
  return staging_.data() + staging_.bytes() / 64 * 64 - kCreditBytes;
}

// Both sides count lanes the same way: as many as the side with more rails has, each side using its rails in
// turn.
Status Peering::openLanes(uint16_t remoteRails) {
  remoteRails_ = std::max<uint16_t>(remoteRails, 1);
  const size_t most = static_cast<size_t>(engine_.config().maxRails);
  const size_t count =
      std::min(std::max<size_t>(engine_.railCount(), remoteRails_), std::min(most, kMaxLanes));
  for (size_t i = 0; i < count; i++) {
    const size_t turn = i % engine_.railCount();
    size_t rail = turn == i ? engine_.railInUse(i) : lanes_[turn]->rail();  // keys are told once for both
    TRY(auto endpoint, openEndpoint(&rail));
    lanes_.push_back(std::make_unique<Lane>(static_cast<uint8_t>(i), static_cast<uint8_t>(rail),
                                            engine_.railInfo(rail).name, std::move(endpoint), count > 1));
  }
  laneCount_ = static_cast<uint32_t>(count);
  if (count > 1) splitFrom_ = 2 * static_cast<uint64_t>(engine_.config().stripeMinBytes);
  wantsDelivered_ = count > 1 && engine_.railInfo(0).delivery == Delivery::selectable;
  if (count == 1) onlyLane_ = lanes_.front().get();
  lanesPending_ = count;
  if (count > 1) failover_ = std::make_unique<Failover>(engine_, *this);
  return {};
}

// Of the rail wanted, or of another one that stands in for it: its card may have died since the engine was
// made.
Result<std::unique_ptr<Endpoint>> Peering::openEndpoint(size_t* rail) const {
  auto endpoint = engine_.openEndpoint(*rail);
  for (size_t i = 1; !endpoint && endpoint.error().code() != Code::resources && i < engine_.railCount();
       i++) {
    const size_t other = (*rail + i) % engine_.railCount();
    auto instead = engine_.openEndpoint(other);
    if (!instead) continue;
    WEFT_LOG(warn, "rail %s to %s goes over %s: %s", engine_.railInfo(*rail).name.c_str(),
             peer_->name().c_str(), engine_.railInfo(other).name.c_str(), endpoint.error().message().c_str());
    *rail = other;
    return instead;
  }
  return endpoint;
}

// Keys in the order of our rails, each of the card that our lane there goes over.
MemoryNotice Peering::noticeOf(const mem::Region& region, uint32_t id) const {
  MemoryNotice notice{id, {}};
  for (size_t i = 0; i < engine_.railCount(); i++) {
    const size_t rail = i < lanes_.size() ? lanes_[i]->rail() : engine_.railInUse(i);
    const auto blob = region.rail(rail)->blob();
    notice.railBlobs.emplace_back(blob.begin(), blob.end());
  }
  return notice;
}

PeeringInfo Peering::half() const {
  PeeringInfo info;
  info.engine = localEngine_;
  info.peering = number_;
  info.life = life_;
  info.rails = static_cast<uint16_t>(engine_.railCount());
  info.deviceName = engine_.deviceName();
  for (const auto& lane : lanes_) {
    const auto address = lane->endpoint().address();
    info.laneAddresses.emplace_back(address.begin(), address.end());
  }
  info.memory = noticeOf(*landing_.region(), 0);
  info.eagerOffset = landing_.offset();
  info.eagerSlots = localSlots_;
  info.eagerSlotBytes = localSlotBytes_;
  info.eagerFirstSlot = number_ * kEagerSlotsPerPeering;
  info.creditOffset = landing_.region()->offsetOf(creditLanding());
  return info;
}

Status Peering::adopt(const PeeringInfo& half) {
  if (adopted_) return {};
  // Where memory runs out on the way, too: one that is half made is of no use to anybody.
  struct EndUnlessTried {
    ~EndUnlessTried() {
      if (tried) return;
      const MustNotFail unwinding;
      of.end({Ending::By::us, Error(Code::resources, "connecting", "memory ran out")});
    }
    Peering& of;
    bool tried = false;
  } guard{*this};
  Status taken = take(half);
  guard.tried = true;
  if (!taken) end({Ending::By::us, taken.error()});
  return taken;
}

Status Peering::take(const PeeringInfo& half) {
  if (half.rails == 0 || half.laneAddresses.size() != lanes_.size() ||
      half.memory.railBlobs.size() != half.rails) {
    return Error(
        Code::remote, "connecting",
        format("%s offers %zu lanes with %zu memory keys for %u rails; this side has %zu lanes: check that "
               "WEFT_MAX_RAILS is the same on both",
               peer_->name().c_str(), half.laneAddresses.size(), half.memory.railBlobs.size(), half.rails,
               lanes_.size()));
  }
  remote_ = half;
  for (size_t i = 0; i < lanes_.size(); i++) {
    TRY(remotePool_[i], lanes_[i]->endpoint().import(half.memory.railBlobs[i % half.rails]));
  }
  if (lanes_.size() > 1) {
    engine_.wantAfterPoll();
  } else {
    TRY(connectNextLane());
  }
  constexpr uint32_t kHeader = sizeof(EagerHeader);
  const uint32_t room = half.eagerSlotBytes > kHeader ? half.eagerSlotBytes - kHeader : 0;
  const auto ours = static_cast<uint32_t>(engine_.eagerMax());
  const uint32_t most = half.eagerSlots == 0 ? 0 : std::min(room, ours);
  eagerRoom_ = most == 0 ? 0 : size_t{most} + 1;
  remote_.eagerSlots = std::min(half.eagerSlots, kEagerSlotsPerPeering);
  slotMask_ = remote_.eagerSlots >= 64 ? ~uint64_t{0} : (uint64_t{1} << remote_.eagerSlots) - 1;
  prepareEager();
  adopted_ = true;
  return {};
}

// One a pass: a card's first peer may cost it 30 ms of page faults (libfabric 1.17 on EFA), and this is
// inside one of NCCL's calls. A lane that broke before it was used is the business of fail-over.
Status Peering::connectNextLane() {
  const size_t next = lanesConnected_++;
  if (lanesConnected_ < lanes_.size()) engine_.wantAfterPoll();
  Lane& lane = *lanes_[next];
  if (lane.state() != LaneState::connecting || lane.incarnation() > 1) return {};
  return connectLane(lane, remote_.laneAddresses[next]);
}

void Peering::afterPoll() {
  if (adopted_ && !ending_ && !remoteGone_ && lanesConnected_ < lanes_.size()) {
    if (Status connected = connectNextLane(); !connected) end({Ending::By::us, connected.takeError()});
  }
  if (failover_) failover_->afterPoll();
}

Status Peering::connectLane(Lane& lane, std::span<const std::byte> address) {
  TRY(lane.endpoint().connect(address));
  if (engine_.railInfo(lane.rail()).targetMustKnow)
    tell(MessageType::laneConnected, LaneMessage{lane.number(), lane.incarnation(), {}, {}});
  return {};
}

void Peering::onLaneConnected(const LaneMessage& message) {
  if (message.lane >= lanes_.size()) return;
  Lane& lane = *lanes_[message.lane];
  if (lane.state() == LaneState::connecting && lane.incarnation() == message.incarnation)
    lane.endpoint().peerConnected();
}

// Said once, however many comms there are: NCCL keeps the last warning for its user.
void Peering::end(Ending ending) {
  if (ending_) return;
  ending_ = std::make_unique<Ending>(std::move(ending));
  doubt_.reset();
  halted_ = true;
  const std::string why = ending_->error.message();
  if (ending_->by == Ending::By::us && !remoteGone_) tell(MessageType::ended, FailedMessage{0, why});
  if (const size_t open = engine_.openComms(*this); open > 0)
    WEFT_LOG(warn, "%zu comm%s to %s ended: %s", open, open > 1 ? "s" : "", peer_->name().c_str(),
             why.c_str());
  engine_.endComms(*this, *ending_);
}

void Peering::onEnded(const FailedMessage& message) {
  end({Ending::By::peer, Error(Code::remote, peer_->name() + " reports", message.reason)});
}

std::string Peering::where(const Lane& lane) const {
  return "rail " + lane.railName() + " to " + peer_->name();
}

void Peering::laneConnected(Lane& lane, bool ok, const std::string& why) {
  if (lane.state() != LaneState::connecting) return;
  if (!ok && failover_) return laneFailed(lane, why);
  if (!ok) {
    return end({Ending::By::us, Error(Code::remote, "connecting", where(lane) + ": " + why)});
  }
  if (lane.incarnation() == 1) lanesPending_--;
  lane.setState(LaneState::up);
  lanesUp_++;
  if (failover_) failover_->onUp(lane);
}

void Peering::laneFailed(Lane& lane, const std::string& why, bool tellPeer) {
  if (lane.state() != LaneState::up && lane.state() != LaneState::connecting) return;
  if (lane.up()) {
    lanesUp_--;
  } else if (lane.incarnation() == 1) {
    lanesPending_--;
  }
  lane.startRetiring();
  if (ending_) return;
  if (!failover_ || remoteGone_)
    return lastLaneFailed(Error(Code::remote, "sending", where(lane) + ": " + why));
  failover_->begin(lane, why, tellPeer);
  if (lanesUp_ > 0 || lanesPending_ > 0) return;
  lastLaneFailed(
      Error(Code::remote, "sending", "no rail to " + peer_->name() + " is left; " + failover_->causes()));
}

// A peer that closes says so before it takes its lanes away, but by the control link, which is the slower
// one. So it is asked: when it answers, it has not closed.
void Peering::lastLaneFailed(Error error) {
  if (remoteGone_ || !peer_->alive()) return end({Ending::By::us, std::move(error)});
  if (doubt_) return;
  doubt_ = std::make_unique<Error>(std::move(error));
  doubtedAt_ = engine_.now();
  halted_ = true;
  tell(MessageType::askPolled, CommMessage{0, static_cast<uint64_t>(doubtedAt_.time_since_epoch().count())});
}

void Peering::peerAnswered(uint64_t question) {
  if (static_cast<uint64_t>(doubtedAt_.time_since_epoch().count()) <= question) endDoubt();
}

void Peering::watchDoubt(TimePoint now) {
  if (doubt_ && now - doubtedAt_ >= kDoubt) endDoubt();
}

void Peering::endDoubt() {
  if (const auto doubt = std::move(doubt_))
    end({remoteGone_ ? Ending::By::gone : Ending::By::us, std::move(*doubt)});
}

void Peering::laneRetired(Lane& lane) {
  if (!failover_ || ending_) return lane.setState(LaneState::dead);
  failover_->onRetired(lane);
}

void Peering::failIfLeaving() {
  if (ending_ || !failover_ || !failover_->recovering()) return;
  end({Ending::By::gone,
       Error(Code::remote, "leaving a rail",
             peer_->name() + " closed its engine before it had accounted for " + failover_->causes())});
}

void Peering::fence() {
  for (auto& lane : lanes_) lane->startRetiring();
}

bool Peering::fenced() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane->state() >= LaneState::retired; });
}

bool Peering::upOn(size_t rail) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [&](const auto& lane) { return lane->up() && lane->rail() == rail; });
}

bool Peering::upWithout(size_t rail) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [&](const auto& lane) { return lane->up() && lane->rail() != rail; });
}

Lane* Peering::laneOf(const Endpoint* endpoint) {
  for (auto& lane : lanes_) {
    if (&lane->endpoint() == endpoint) return lane.get();
  }
  return nullptr;
}

uint32_t Peering::nextTurn() {
  const uint32_t turn = turn_;
  if (++turn_ == lanes_.size()) endRound();
  return turn;
}

void Peering::endRound() {
  turn_ = 0;
  fastest_ = 0;
  for (const auto& lane : lanes_) {
    lane->countRound();
    fastest_ = std::max(fastest_, lane->load().bytesPerUs);
  }
}

// Mostly the lane whose turn it is has nothing to do, and is as good as any. For little even one is that is
// slow, or has a little more to do: what takes its time then is the way, not the bytes.
Lane& Peering::quickestOfSeveral(uint64_t bytes) {
  constexpr uint64_t kLittle = 4 << 10;
  constexpr uint32_t kFewWorks = 8;  // and no more: of a lane that is stuck nobody knows yet
  const uint32_t turn = nextTurn();
  Lane& next = *lanes_[turn];
  const bool good = bytes <= kLittle ? next.isFree(kFewWorks, fastest_ / 4) : next.isFree(0, fastest_ * 0.9f);
  return good ? next : quickestByLoad(bytes, turn);
}

// A lane of unknown rate is taken for the fastest. Where none is up, any: it drops what it is given.
Lane& Peering::quickestByLoad(uint64_t bytes, uint32_t turn) {
  const auto loadOf = [this](size_t i) { return lanes_[i]->load(); };
  const int quickest = core::quickestLane(lanes_.size(), loadOf, bytes, fastest_ > 0 ? fastest_ : 1, turn);
  return *lanes_[static_cast<size_t>(std::max(0, quickest))];
}

size_t Peering::split(uint64_t bytes, std::array<Segment, kMaxSegments>* out) {
  LaneLoad loads[kMaxLanes];
  for (size_t i = 0; i < lanes_.size(); i++) loads[i] = lanes_[i]->load();
  return planSegments(std::span(loads, lanes_.size()), bytes, splitFrom_ / 2, nextTurn(), *out);
}

bool Peering::flush(TimePoint now) {
  bool more = false;
  if (!halted_) {
    for (auto& lane : lanes_) more |= lane->hasQueued() && lane->up() && lane->flush(now);
  }
  awaitsFlush_ = more;
  return more;
}

}  // namespace weft::core
