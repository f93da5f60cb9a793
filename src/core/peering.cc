// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/peering.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/ending_log.h"

namespace weft::core {

namespace {

constexpr size_t kCreditBytes = 64;  // a line of its own, so that no cache line has two writers

}  // namespace

Peering::Peering(EngineParts& parts, PathOwner& owner, uint32_t number, uint32_t life, control::PeerRef peer,
                 uint32_t remoteEngine)
    : parts_(parts),
      owner_(owner),
      number_(number),
      lifeNumber_(life),
      peer_(std::move(peer)),
      remoteEngine_(remoteEngine),
      localEngine_(parts.id()),
      lanes_(*this, parts.config()),
      failover_(parts, owner, *this, lanes_, eagerOut_, eagerIn_),
      life_(format("peering %u with %s", number, peer_->name().c_str())),
      memory_(*this) {}

Peering::~Peering() {
  tellTraffic();
  tellRails();
  if (awaitsFlush_) parts_.dropFlush(this);
  parts_.budget().giveBackSlots(eagerIn_.slots(), eagerIn_.slotBytes());
}

Result<std::unique_ptr<Peering>> Peering::create(EngineParts& parts, PathOwner& owner, uint32_t number,
                                                 uint32_t life, control::PeerRef peer, uint32_t remoteEngine,
                                                 uint16_t remoteRails) {
  auto peering = std::make_unique<Peering>(parts, owner, number, life, std::move(peer), remoteEngine);
  TRY(peering->takeMemory());
  TRY(peering->openLanes(remoteRails));
  if (parts.hasLocal()) peering->sameHost_.offer(parts.openLocalEndpoint());
  return peering;
}

// The eager pool is offered only as far as the notification budget goes: every slot may fill at any time.
Status Peering::takeMemory() {
  const Config& config = parts_.config();
  const uint32_t slotBytes = eagerSlotBytes(parts_.eagerMax());
  const auto wanted = slotBytes ? static_cast<uint32_t>(config.eagerSlots) : 0;
  const uint32_t slots = parts_.budget().takeSlots(std::min(wanted, kEagerSlotsPerPeering), slotBytes);
  eagerIn_.open(nullptr, slots, slotBytes);  // from here on the destructor gives the budget back
  TRY(landing_, parts_.arena().take(size_t{slots} * slotBytes + kCreditBytes));
  TRY(credits_, parts_.arena().take(kCreditBytes));
  eagerIn_.open(landing_.data(), slots, slotBytes);
  std::memset(creditLanding(), 0, kCreditBytes);  // what an earlier peering left must not be believed
  return {};
}

Result<mem::Block> Peering::takeRing() {
  if (!rings_.empty()) {
    mem::Block ring = std::move(rings_.back());
    rings_.pop_back();
    return ring;
  }
  if (rings_.capacity() <= ringsTaken_) rings_.reserve(2 * ringsTaken_ + 1);
  TRY(mem::Block ring, parts_.arena().take(kRingBytes));
  ringsTaken_++;
  return ring;
}

Result<mem::Block> Peering::takeCtsStaging() {
  const bool rested = !resting_.empty() && !lanes_.hasQueued() &&
                      parts_.readNow() - resting_.front().since > lanes_.patience();
  if (!rested) return parts_.arena().take(kRingBytes);
  mem::Block staging = std::move(resting_.front().staging);
  resting_.erase(resting_.begin());
  return staging;
}

void Peering::restStaging(mem::Block staging) {
  resting_.push_back({std::move(staging), parts_.readNow()});
}

// With one rail there is nothing to compare, and its CTS and credits are not counted.
void Peering::tellTraffic() const {
  if (!lanes_.several() || life_.is(Stage::opening) || !logEnabled(LogLevel::info)) return;
  const MustNotFail closing;
  std::string rails;
  for (size_t i = 0; i < lanes_.size(); i++) {
    const Lane& lane = lanes_.at(i);
    const LaneTotals& did = lane.totals();
    rails += format("%s %s: %llu writes, %llu bytes", rails.empty() ? "" : ";", lane.railName().c_str(),
                    static_cast<unsigned long long>(did.works), static_cast<unsigned long long>(did.bytes));
    if (did.worksAgain > 0) rails += format(", %llu again", static_cast<unsigned long long>(did.worksAgain));
    if (lane.incarnation() > 1) rails += format(", revived %u times", lane.incarnation() - 1);
    if (!lane.up()) rails += ", not up";
  }
  WEFT_LOG(info, "sent to %s over%s", peer_->name().c_str(), rails.c_str());
}

void Peering::tellRails() {
  if (!lanes_.several() || !parts_.rails()) return;
  const MustNotFail nobodyToTell;
  for (size_t i = 0; i < lanes_.size(); i++) {
    const LaneTotals did = lanes_.at(i).untold();
    if (did.works > 0)
      parts_.rails()->add(parts_.deviceName(), lanes_.at(i).railName(),
                          {did.works, did.bytes, did.bytesAgain});
  }
}

std::byte* Peering::creditLanding() const {
  return landing_.data() + landing_.bytes() / 64 * 64 - kCreditBytes;
}
// Both sides count lanes the same way: as many as the side with more rails has, each side using its rails in
// turn.
Status Peering::openLanes(uint16_t remoteRails) {
  remoteRails_ = std::max<uint16_t>(remoteRails, 1);
  const size_t most = static_cast<size_t>(parts_.config().maxRails);
  const size_t count =
      std::min(std::max<size_t>(parts_.railCount(), remoteRails_), std::min(most, LaneSet::kMaxLanes));
  for (size_t i = 0; i < count; i++) {
    const size_t turn = i % parts_.railCount();
    size_t rail = turn == i ? parts_.railInUse(i) : lanes_.at(turn).rail();  // keys are told once for both
    TRY(auto endpoint, openFirst(&rail));
    lanes_.add(static_cast<uint8_t>(rail), parts_.railInfo(rail).name, std::move(endpoint), count);
  }
  wantsDelivered_ = count > 1 && parts_.railInfo(0).delivery == Delivery::selectable;
  return {};
}

// Of the rail wanted, or of another one that stands in for it: its card may have died since the engine was
// made.
Result<std::unique_ptr<Endpoint>> Peering::openFirst(size_t* rail) const {
  auto endpoint = parts_.openEndpoint(*rail);
  for (size_t i = 1; !endpoint && endpoint.error().code() != Code::resources && i < parts_.railCount(); i++) {
    const size_t other = (*rail + i) % parts_.railCount();
    auto instead = parts_.openEndpoint(other);
    if (!instead) continue;
    WEFT_LOG(warn, "rail %s to %s goes over %s: %s", parts_.railInfo(*rail).name.c_str(),
             peer_->name().c_str(), parts_.railInfo(other).name.c_str(), endpoint.error().message().c_str());
    *rail = other;
    return instead;
  }
  return endpoint;
}

// Keys in the order of our rails, each of the card that our lane there goes over. Where shared memory may
// take their place, or goes before them, its key comes last; where it has their place it is the only one.
MemoryNotice Peering::noticeOf(const mem::Region& region, uint32_t id) const {
  MemoryNotice notice{id, {}};
  const auto add = [&](size_t rail) {
    const auto blob = region.rail(rail)->blob();
    notice.railBlobs.emplace_back(blob.begin(), blob.end());
  };
  const size_t first = firstRail();
  if (sameHost_.state() != SameHost::State::yes || first > 0) {
    for (size_t i = 0; i < parts_.railCount(); i++)
      add(i + first < lanes_.size() ? lanes_.at(i + first).rail() : parts_.railInUse(i));
  }
  if (sameHost_.state() != SameHost::State::no) add(parts_.localRail());
  return notice;
}

const Bytes& Peering::keyFor(size_t lane, const std::vector<Bytes>& keys) const {
  if (sameHost_.state() != SameHost::State::yes) return keys[lane % keys.size()];
  if (lane == 0 || keys.size() == 1) return keys.back();  // the lane through shared memory
  return keys[(lane - 1) % (keys.size() - 1)];
}

void Peering::announceToPeer(const mem::Region& region, uint32_t id) {
  tell(MessageType::announce, noticeOf(region, id));
}

void Peering::withdrawFromPeer(uint32_t id) {
  tell(MessageType::withdraw, CommMessage{id, 0});
}

Result<Peering::Imported> Peering::importFromPeer(const MemoryNotice& notice) {
  if (notice.railBlobs.empty())
    return Error(Code::remote, "importing memory", peer_->name() + " sent no keys");
  Imported entry{};
  for (size_t i = 0; i < laneCount(); i++) {
    TRY(entry[i], lane(i).endpoint().import(keyFor(i, notice.railBlobs)));
  }
  return entry;
}

PeeringInfo Peering::half() {
  PeeringInfo info;
  info.engine = localEngine_;
  info.peering = number_;
  info.life = lifeNumber_;
  info.rails = static_cast<uint16_t>(parts_.railCount());
  info.deviceName = parts_.deviceName();
  for (size_t i = firstRail(); i < lanes_.size(); i++) {
    const auto address = lanes_.at(i).endpoint().address();
    info.laneAddresses.emplace_back(address.begin(), address.end());
  }
  info.localAddress = sameHost_.address();
  info.memory = noticeOf(*landing_.region(), 0);
  info.eagerOffset = landing_.offset();
  info.eagerSlots = eagerIn_.slots();
  info.eagerSlotBytes = eagerSlotBytes(parts_.eagerMax());
  info.eagerFirstSlot = number_ * kEagerSlotsPerPeering;
  info.creditOffset = landing_.region()->offsetOf(creditLanding());
  return info;
}

Status Peering::adopt(const PeeringInfo& half) {
  if (ending_) return ending_->error;
  if (remote_.life != 0 && remote_.life != half.life)
    return Error(Code::remote, "connecting", peer_->name() + " answered with lanes that it has ended since");
  if (!life_.is(Stage::opening)) return {};
  remote_.life = half.life;  // whatever fails is told to that one
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

Status Peering::checkKeys(const PeeringInfo& half) const {
  const size_t keys = half.rails + (half.localAddress.empty() ? 0 : 1);
  const bool shared = sameHost_.state() == SameHost::State::yes;
  if (shared && !half.memory.railBlobs.empty()) return {};  // the rails' lanes were compared, or dropped
  if (!shared && half.rails > 0 && half.laneAddresses.size() == lanes_.size() &&
      half.memory.railBlobs.size() == keys)
    return {};
  return Error(
      Code::remote, "connecting",
      format("%s offers %zu lanes with %zu memory keys for %u rails; this side has %zu lanes: check that "
             "WEFT_MAX_RAILS is the same on both",
             peer_->name().c_str(), half.laneAddresses.size(), half.memory.railBlobs.size(), half.rails,
             lanes_.size()));
}

// The engine's buffers have the size that its rails want. A lane to a peer on this host is no rail: without a
// setting it takes what suits it, as far as the buffers have room.
int Peering::eagerMost() const {
  const bool own = parts_.config().eagerMaxBytes >= 0;
  if (own || sameHost_.state() != SameHost::State::yes) return parts_.eagerMax();
  return std::min(parts_.eagerMax(), parts_.railInfo(parts_.localRail()).eagerBytes);
}

bool Peering::takesDirect() const {
  return lanes_.size() == 1 && sameHost_.state() != SameHost::State::yes &&
         parts_.railInfo(lanes_.at(0).rail()).messages;
}

// Shared memory in place of the rails:

// An end that got the peer's half by `open` finds in it what the peer decided; our own endpoint then says the
// same.
Status Peering::settleSameHost(const PeeringInfo& half) {
  const bool asked = sameHost_.state() != SameHost::State::no || !sameHost_.why().empty();
  if (!sameHost_.decided()) {
    sameHost_.ask(half.localAddress);
    if (half.localAddress.empty()) sameHost_.answered(false, "the peer cannot see our memory");
    if (!sameHost_.decided()) owner_.drain(parts_.localRail());
  }
  if (!sameHost_.decided())
    return Error(Code::remote, "connecting",
                 peer_->name() +
                     " says that the two share memory, which is not so here; WEFT_LOCAL=off "
                     "goes by the network");
  if (sameHost_.state() == SameHost::State::yes)
    goThroughSharedMemory(half);
  else if (asked)
    WEFT_LOG(info, "messages to %s go by %s, not through shared memory: %s", peer_->name().c_str(),
             lanes_.railNames().c_str(), sameHost_.why().c_str());
  return {};
}

// Host memory is lost with the peer's process alone, and then no rail helps. A copy from GPU to GPU may fail
// though both processes live. So the rails' lanes are connected, too, and stand by; both ends come to the
// same answer, as either sees whether the other has kept its addresses and keys.
bool Peering::keepsRails(const PeeringInfo& half) const {
  return parts_.railInfo(parts_.localRail()).cudaMemory && lanes_.size() < LaneSet::kMaxLanes &&
         half.rails > 0 && half.laneAddresses.size() == lanes_.size() &&
         half.memory.railBlobs.size() == size_t{half.rails} + 1;
}

// The rails' lanes were never connected. This one is.
void Peering::goThroughSharedMemory(const PeeringInfo& half) {
  const size_t rail = parts_.localRail();
  const bool keeps = keepsRails(half);
  if (keeps) {
    lanes_.addPreferred(static_cast<uint8_t>(rail), parts_.railInfo(rail).name, sameHost_.take());
    wantsDelivered_ = parts_.railInfo(0).delivery == Delivery::selectable;
  } else {
    lanes_.clear();
    lanes_.add(static_cast<uint8_t>(rail), parts_.railInfo(rail).name, sameHost_.take(), 1);
    wantsDelivered_ = false;
  }
  lanesConnected_ = 1;
  lanes_.connected(lanes_.at(0), true, {});
  WEFT_LOG(info, "messages to %s go through shared memory%s", peer_->name().c_str(),
           keeps ? ", and by the network should that break" : "");
}

Status Peering::take(const PeeringInfo& half) {
  TRY(settleSameHost(half));
  const bool shared = sameHost_.state() == SameHost::State::yes;
  TRY(checkKeys(half));
  remote_ = half;
  for (size_t i = 0; i < lanes_.size(); i++) {
    const Bytes& blob = shared ? keyFor(i, half.memory.railBlobs) : half.memory.railBlobs[i % half.rails];
    TRY(remotePool_[i], lanes_.at(i).endpoint().import(blob));
  }
  if (lanes_.size() > 1) {
    parts_.wantAfterPoll();
  } else if (!shared) {
    TRY(connectNextLane());
  }
  constexpr uint32_t kHeader = sizeof(EagerHeader);
  const uint32_t room = half.eagerSlotBytes > kHeader ? half.eagerSlotBytes - kHeader : 0;
  const auto ours = static_cast<uint32_t>(eagerMost());
  eagerOut_.open(half.eagerSlots, eagerSlotBytes(parts_.eagerMax()), std::min(room, ours), number_,
                 creditLanding());
  life_.apply(Event::halfHere);
  failover_.onHalfHere();
  returnCredits();
  lanesChanged();
  return {};
}

// One a pass: a card's first peer may cost it 30 ms of page faults (libfabric 1.17 on EFA), and this is
// inside one of NCCL's calls. A lane that broke before it was used is the business of fail-over.
Status Peering::connectNextLane() {
  const size_t next = lanesConnected_++;
  if (lanesConnected_ < lanes_.size()) parts_.wantAfterPoll();
  Lane& lane = lanes_.at(next);
  if (lane.state() != LaneState::connecting || lane.incarnation() > 1) return {};
  return connectLane(lane, remote_.laneAddresses[next - firstRail()]);
}

void Peering::afterPoll() {
  if (!life_.is(Stage::opening) && !over() && lanesConnected_ < lanes_.size()) {
    if (Status connected = connectNextLane(); !connected) end({Ending::By::us, connected.takeError()});
  }
  failover_.afterPoll();
}

Status Peering::connectLane(Lane& lane, std::span<const std::byte> address) {
  TRY(lane.endpoint().connect(address));
  if (parts_.railInfo(lane.rail()).targetMustKnow)
    tell(MessageType::laneConnected, LaneMessage{lane.number(), lane.incarnation(), {}, {}});
  return {};
}

void Peering::onLaneConnected(const LaneMessage& message) {
  if (message.lane >= lanes_.size()) return;
  Lane& lane = lanes_.at(message.lane);
  if (lane.state() != LaneState::connecting || lane.incarnation() != message.incarnation) return;
  const DeviceInfo& rail = parts_.railInfo(lane.rail());
  if (rail.targetMustKnow) lane.endpoint().peerConnected();
  if (rail.peerMustStand) lanes_.peerStands(lane);
}

bool Peering::awaitsPeer(Lane& lane) {
  if (!parts_.railInfo(lane.rail()).peerMustStand) return false;
  tell(MessageType::laneConnected, LaneMessage{lane.number(), lane.incarnation(), {}, {}});
  return true;
}

// Its life:

void Peering::lanesChanged() {
  if (life_.is(Stage::opening) || over()) return;
  if (lanes_.up() > 0 && !lanes_.connectingFirst()) life_.apply(Event::lanesUp);
  if (lanes_.onlySuspected()) life_.apply(Event::lanesDown, lanes_.causes());
}

// Said once, however many comms there are.
void Peering::end(Ending ending) {
  if (ending_) return;
  const bool tellPeer = ending.by == Ending::By::us && !remoteGone();
  ending_ = std::make_unique<Ending>(std::move(ending));
  life_.apply(Event::failed, ending_->error.message());
  if (tellPeer) tell(MessageType::ended, FailedMessage{0, ending_->error.message()});
  logEnding(peer_, owner_.openComms(*this), *ending_, parts_.now());
  owner_.endComms(*this, *ending_);
}

void Peering::cut() {
  end({Ending::By::us,
       Error(Code::remote, "closing",
             "a comm to " + peer_->name() + " was closed with data in flight; its lanes were cut")});
  if (life_.apply(Event::cut) == Action::cut) lanes_.fence();
}

void Peering::onEnded(const FailedMessage& message) {
  end({Ending::By::peer, Error(Code::remote, peer_->name() + " reports", message.reason)});
}

bool Peering::isIdle(TimePoint now) {
  if (comms > 0) {
    idleSince_ = TimePoint{};
  } else if (idleSince_ == TimePoint{}) {
    idleSince_ = now;
  }
  return comms == 0;
}

std::string Peering::where(const Lane& lane) const {
  return "rail " + lane.railName() + " to " + peer_->name();
}

void Peering::endIfLeaving() {
  if (ending_ || !lanes_.isLeaving()) return;
  end({Ending::By::gone,
       Error(Code::remote, "leaving a rail",
             peer_->name() + " closed its engine before it had accounted for " + lanes_.causes())});
}

// What its lanes report:

TimePoint Peering::now() {
  return parts_.readNow();
}

Result<std::unique_ptr<Endpoint>> Peering::openEndpoint(size_t rail) {
  return parts_.openEndpoint(rail);
}

void Peering::send(MessageType type, Bytes body) {
  ByteWriter out;
  header().encode(&out);
  peer_->send(static_cast<uint16_t>(type), out.raw(body).take());
}

void Peering::askPeer(TimePoint now) {
  tell(MessageType::askPolled, CommMessage{0, static_cast<uint64_t>(now.time_since_epoch().count())});
}

void Peering::laneUp(Lane& lane) {
  lanesChanged();
  failover_.onUp(lane);
  flushSoon();
}

// What the lane was given while it connected leaves with the end of the pass.
void Peering::flushSoon() {
  if (awaitsFlush_ || !lanes_.hasQueued()) return;
  parts_.queueFlush(this);
  awaitsFlush_ = true;
}

Error Peering::lanesLost() const {
  const bool connecting = stage() < Stage::open;
  return {Code::remote, connecting ? "connecting" : "sending",
          "no rail to " + peer_->name() + " is left; " + lanes_.causes()};
}

// A peer that closes says so before it takes its lanes away, but by the control link, which is the slower
// one. So it is asked: when it answers, it has not closed. That its process is gone by now says nothing: the
// engine reads of both in their order, and its last word was that it closes, if it ended well.
void Peering::laneSuspected(Lane& lane) {
  if (ending_) return lanes_.lose(lane);
  if (remoteGone()) {
    if (lanes_.up() == 0) end({Ending::By::gone, lanesLost()});
    return;  // what the peer had sent may come by another one
  }
  lanesChanged();
  askPeer(parts_.now());
}

void Peering::laneLost(Lane& lane) {
  if (ending_ || remoteGone()) return;
  parts_.counters().lanesLeft++;
  if (!lanes_.anyLeft()) return end({Ending::By::us, lanesLost()});
  lanesChanged();
  failover_.begin(lane);
}

void Peering::laneFenced(Lane& lane) {
  if (!ending_) failover_.onFenced(lane);
}

void Peering::tellWait(const Culprit& culprit) {
  if (stage() != Stage::open || culprit == toldWait_) return;
  toldWait_ = culprit;
  tell(MessageType::waitsFor, FailedMessage{culprit.k, culprit.name});
}

void Peering::watch(TimePoint now) {
  if (ending_) return;
  for (size_t i = 0; i < lanes_.size(); i++)
    if (lanes_.at(i).takePeerSeen()) peer_->seenOnFabric(now);
  lanes_.watch(now, peer_->settled(), !remoteGone());
}

// Without the peer's half its lanes wait for nothing that a poll would find.
bool Peering::tickBusy() {
  if (over()) return false;
  if (life_.is(Stage::opening)) return sameHost_.state() == SameHost::State::asked;
  return lanes_.tickBusy() || lanes_.isLeaving();
}

void Peering::leaveWith(uint32_t departure) {
  if (!gathering_.isFor(departure)) return;
  gathering_.tested();
  if (parts_.isDue()) owner_.flushQueued();
}

void Peering::leaveNow() {
  gathering_.hurry();
  if (parts_.isDue()) owner_.flushQueued();
}

bool Peering::flush(TimePoint now) {
  if (gathering_.holds(parts_.pass())) return true;
  gathering_.left();
  awaitsFlush_ = !halted() && lanes_.flush(now);
  return awaitsFlush_;
}

}  // namespace weft::core
