// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/link.h"

#include <algorithm>

#include "src/base/log.h"

namespace weft::control {

namespace {

constexpr size_t kWriteAhead = 128 * 1024;  // encoded but not yet in the socket
constexpr uint64_t kArrivalsPerAck = 16;    // otherwise pings and our own frames carry it

}  // namespace

Link::Link(Owner& owner, const Incarnation& process)
    : owner_(owner), process_(process), lookTimer_(owner.loop(), [this] { look(); }) {}

Link::~Link() {
  if (facts_.peer) facts_.peer->connectSink(nullptr);
}

// Neither a connection nor a dial outlives the state it belongs to. False, and nothing done: the link is not
// where that may follow.
bool Link::enter(State next) {
  // An up link comes up again when the peer dials anew without our having seen why.
  constexpr bool kMayFollow[4][4] = {
      {false, true, false, true},    // opening: up, dead
      {false, true, true, true},     // up: up, lost, dead
      {false, true, false, true},    // lost: up, dead
      {false, false, false, false},  // dead
  };
  if (!kMayFollow[static_cast<size_t>(state_)][static_cast<size_t>(next)]) return false;
  leaveConnection();
  if (next == State::lost) silentSince_ = kernelHeard_;
  if (next == State::dead) lookTimer_.cancel();
  if (state_ == State::lost && next == State::up) settleAfterOutage(owner_.loop().now());
  if (next != State::up) frames_.rewind();
  state_ = next;
  return true;
}

void Link::leaveConnection() {
  if (io_) {
    io_->close();
    owner_.deferDelete(std::move(io_));
  }
  if (dial_) owner_.deferDelete(std::move(dial_));
}

void Link::dial(DialPlan plan) {
  if (dial_) owner_.deferDelete(std::move(dial_));
  dial_ = std::make_unique<Dial>(owner_.loop(), *this, std::move(plan));
  dial_->start();
}

void Link::establish(LinkFacts facts) {
  facts_ = std::move(facts);
  kernelHeard_ = processHeard_ = fabricHeard_ = silentSince_ = lookDue_ = owner_.loop().now();
  facts_.peer->connectSink(this);
}

void Link::attach(Fd socket, const Info& info) {
  if (!enter(State::up)) return cut(socket);
  if (!frames_.acknowledge(info.received)) return linkNonsense("it acknowledges what was never sent");
  frames_.rewind();
  peerEpoch_ = info.epoch;
  bytesAcked_ = 0;
  const TimePoint now = owner_.loop().now();
  kernelHeard_ = lastPing_ = now;
  io_ = std::make_unique<LinkIo>(owner_.loop(), *this, std::move(socket));
  if (!io_->start()) return lose("out of descriptors");
  heard();
  pump();
  scheduleLook(now);
}

// The info must be the first frame, so it goes straight into the fresh socket's buffer, which it always fits.
void Link::attachAndGreet(Fd socket, const Info& info) {
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::info);
  Bytes bytes;
  encodeFrame(header, owner_.ownInfo(owner_.nextEpoch(), frames_.received()), bytes);
  (void)sendSome(socket.get(), bytes);
  attach(std::move(socket), info);
}

void Link::deliver(uint16_t type, Bytes body) {
  if (state_ == State::dead || closing_) return;
  frames_.push(type, std::move(body));
  pump();
}

// Until all is in the socket or the socket is full; then its room calls us again.
void Link::pump() {
  while (io_ && io_->queued() == 0 && frames_.nextUnsent()) {
    const FrameQueue::Frame* frame = nullptr;
    while (io_->queued() < kWriteAhead && (frame = frames_.nextUnsent())) writeNumbered(*frame);
    io_->flush();
  }
}

void Link::writeNumbered(const FrameQueue::Frame& frame) {
  io_->write({0, frame.type, frame.sequence, frames_.received()}, frame.body);
  frames_.markSent();
  unacknowledgedArrivals_ = 0;
}

void Link::sendUnnumbered(FrameType type, std::span<const std::byte> body) {
  if (!io_) return;
  io_->write({0, static_cast<uint16_t>(type), 0, frames_.received()}, body);
  unacknowledgedArrivals_ = 0;
  io_->flush();
  pump();  // the flush may have made the room that pump() waits for
}

void Link::ping() {
  if (io_->queued() < kWriteAhead) sendUnnumbered(FrameType::ping);
}

void Link::goodbye() {
  if (closing_) return;
  closing_ = true;
  if (dial_) owner_.deferDelete(std::move(dial_));
  if (!io_) return;
  while (const auto* frame = frames_.nextUnsent()) writeNumbered(*frame);
  sendUnnumbered(FrameType::goodbye);
  linkRoom();
}

void Link::linkRoom() {
  if (!closing_) return pump();
  if (io_ && io_->queued() == 0) io_->endWriting();
}

bool Link::drained() const {
  return !io_ || io_->closed();
}

void Link::linkFrame(const FrameHeader& header, std::span<const std::byte> body) {
  heard();
  if (!frames_.acknowledge(header.received)) return linkNonsense("it acknowledges what was never sent");
  if (!acceptNumber(header)) return;
  dispatch(header, body);
  if (io_ && unacknowledgedArrivals_ >= kArrivalsPerAck) sendUnnumbered(FrameType::pong);
}

// True when the frame is to be looked at.
bool Link::acceptNumber(const FrameHeader& header) {
  if (header.sequence == 0) return true;
  const auto arrival = frames_.arrive(header.sequence);
  if (arrival == FrameQueue::Arrival::gap) linkNonsense("a frame is missing");
  if (arrival != FrameQueue::Arrival::fresh) return false;
  unacknowledgedArrivals_++;
  return true;
}

void Link::dispatch(const FrameHeader& header, std::span<const std::byte> body) {
  if (header.type >= kFirstUserType) return owner_.linkMessage(*this, header.type, body);
  switch (const auto type = static_cast<FrameType>(header.type)) {
    case FrameType::ping:
      return sendUnnumbered(FrameType::pong);
    case FrameType::pong:
      return;
    case FrameType::call:
    case FrameType::reply:
    case FrameType::refuse:
      return owner_.linkFrame(*this, type, body);
    case FrameType::goodbye:
      return die(Error(Code::remote, "control link to " + facts_.peer->name(), "peer closed"));
    case FrameType::info:
    case FrameType::reject:
      break;
  }
  linkNonsense("a greeting in the middle of a link");
}

void Link::linkLost(const std::string& why) {
  kernelHeard_ = std::max(kernelHeard_, owner_.loop().now() - owner_.lifeTimes().ping);
  lose(why);
}

void Link::linkNonsense(const std::string& why) {
  die(Error(Code::remote, "control link to " + facts_.peer->name(), "the peer sent nonsense: " + why));
}

void Link::lose(const std::string& why) {
  if (closing_) return leaveConnection();
  if (!enter(State::lost)) return;
  WEFT_LOG(info, "control link to %s lost (%s); dialling again", facts_.peer->name().c_str(), why.c_str());
  facts_.peer->setSettled(false);
  redial();
  scheduleLook(owner_.loop().now());
}

void Link::redial() {
  const LifeTimes& times = owner_.lifeTimes();
  const auto addresses = static_cast<int64_t>(facts_.addresses.size());
  DialPlan plan;
  plan.kind = HelloKind::resume;
  plan.self = owner_.self();
  plan.peer = process_;
  plan.secret = facts_.linkKey;
  plan.addresses = facts_.addresses;
  plan.own = owner_.addresses();
  plan.connectPatience = std::clamp(times.redial / addresses, Milliseconds(20), Milliseconds(1000));
  plan.answerPatience = std::max(times.redial, Milliseconds(20));
  dial(std::move(plan));
}

void Link::dialLinked(Linked linked) {
  if (state_ == State::opening) return owner_.linkOpened(*this, std::move(linked));
  WEFT_LOG(info, "control link to %s stands again", facts_.peer->name().c_str());
  attach(std::move(linked.socket), linked.info);
}

void Link::dialRefused(const Error& why) {
  if (state_ == State::opening) return owner_.linkRefused(*this, why);
  die(Error(Code::remote, "control link to " + facts_.peer->name(), why.detail()));
}

void Link::dialGone(const Error& why) {
  if (state_ == State::opening) return owner_.linkUnreachable(*this, why);
  die(Error(Code::remote, "control link to " + facts_.peer->name(), why.detail()));
}

void Link::die(const Error& reason) {
  if (!enter(State::dead)) return;
  frames_.clear();
  facts_.peer->markDead(reason);
  owner_.linkDead(*this, reason);
}

}  // namespace weft::control
