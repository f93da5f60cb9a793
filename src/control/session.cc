// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/session.h"

#include <algorithm>

#include "src/base/log.h"

namespace weft::control {

namespace {

constexpr size_t kWriteAhead = 128 * 1024;  // encoded but not yet in the socket
constexpr uint64_t kArrivalsPerAck = 16;    // otherwise pings and our own frames carry it
constexpr Milliseconds kLongestPing{1000};
constexpr Milliseconds kShortestPing{5};
constexpr Milliseconds kLongestUntilRedial{1500};
constexpr Milliseconds kLongestUntilHostWarn{3000};
constexpr Milliseconds kLongestSettling{120'000};  // TCP's longest pause

int toMilliseconds(Nanoseconds time) {
  return static_cast<int>(std::chrono::duration_cast<Milliseconds>(time).count());
}

}  // namespace

LifeTimes::LifeTimes(const Config& config)
    : ping(std::clamp(std::min(config.kernelTimeout / 3, config.peerSilentWarn / 4), kShortestPing,
                      kLongestPing)),
      silent(ping * 5 / 2),
      warn(config.peerSilentWarn),
      giveUp(config.peerTimeout),
      redial(std::min(config.kernelTimeout / 2, kLongestUntilRedial)),
      hostWarn(std::min(config.kernelTimeout / 2, kLongestUntilHostWarn)),
      kernel(config.kernelTimeout) {}

Session::Session(Owner& owner, SessionSeed seed)
    : owner_(owner), seed_(std::move(seed)), lookTimer_(owner.loop(), [this] { look(); }) {
  kernelHeard_ = processHeard_ = fabricHeard_ = silentSince_ = lookDue_ = owner.loop().now();
  seed_.peer->connectSink(this);
}

Session::~Session() {
  seed_.peer->connectSink(nullptr);
}

void Session::attach(Fd socket, const Info& info) {
  dropConnection();
  if (dial_) owner_.bury(std::move(dial_));
  if (!frames_.acknowledge(info.received)) return linkNonsense("it acknowledges what was never sent");
  frames_.rewind();
  peerEpoch_ = info.epoch;
  bytesAcked_ = 0;
  const TimePoint now = owner_.loop().now();
  if (state_ == State::lost) settleAfterOutage(now);
  state_ = State::up;
  kernelHeard_ = lastPing_ = now;
  io_ = std::make_unique<LinkIo>(owner_.loop(), *this, std::move(socket));
  if (!io_->start()) return lose("out of descriptors");
  heard();
  pump();
  scheduleLook(now);
}

// The info must be the first frame, so it goes straight into the fresh socket's buffer, which it always fits.
void Session::attachAndGreet(Fd socket, const Info& info) {
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::info);
  Bytes bytes;
  encodeFrame(header, owner_.ownInfo(owner_.nextEpoch(), frames_.received()), bytes);
  (void)sendSome(socket.get(), bytes);
  attach(std::move(socket), info);
}

void Session::deliver(uint16_t type, Bytes body) {
  if (state_ == State::dead || closing_) return;
  frames_.push(type, std::move(body));
  pump();
}

// Until all is in the socket or the socket is full; then its room calls us again.
void Session::pump() {
  while (io_ && io_->queued() == 0 && frames_.nextUnsent()) {
    const FrameQueue::Frame* frame = nullptr;
    while (io_->queued() < kWriteAhead && (frame = frames_.nextUnsent())) writeNumbered(*frame);
    io_->flush();
  }
}

void Session::writeNumbered(const FrameQueue::Frame& frame) {
  io_->write({0, frame.type, frame.sequence, frames_.received()}, frame.body);
  frames_.markSent();
  unacknowledgedArrivals_ = 0;
}

void Session::sendUnnumbered(FrameType type, std::span<const std::byte> body) {
  if (!io_) return;
  io_->write({0, static_cast<uint16_t>(type), 0, frames_.received()}, body);
  unacknowledgedArrivals_ = 0;
  io_->flush();
  pump();  // the flush may have made the room that pump() waits for
}

void Session::goodbye() {
  if (closing_) return;
  closing_ = true;
  if (dial_) owner_.bury(std::move(dial_));
  if (!io_) return;
  while (const auto* frame = frames_.nextUnsent()) writeNumbered(*frame);
  sendUnnumbered(FrameType::goodbye);
  linkRoom();
}

void Session::linkRoom() {
  if (!closing_) return pump();
  if (io_ && io_->queued() == 0) io_->endWriting();
}

bool Session::drained() const {
  return !io_ || io_->closed();
}

void Session::linkFrame(const FrameHeader& header, std::span<const std::byte> body) {
  heard();
  if (!frames_.acknowledge(header.received)) return linkNonsense("it acknowledges what was never sent");
  if (!acceptNumber(header)) return;
  dispatch(header, body);
  if (io_ && unacknowledgedArrivals_ >= kArrivalsPerAck) sendUnnumbered(FrameType::pong);
}

// True when the frame is to be looked at.
bool Session::acceptNumber(const FrameHeader& header) {
  if (header.sequence == 0) return true;
  const auto arrival = frames_.arrive(header.sequence);
  if (arrival == FrameQueue::Arrival::gap) linkNonsense("a frame is missing");
  if (arrival != FrameQueue::Arrival::fresh) return false;
  unacknowledgedArrivals_++;
  return true;
}

void Session::dispatch(const FrameHeader& header, std::span<const std::byte> body) {
  if (header.type >= kFirstUserType) return owner_.sessionMessage(*this, header.type, body);
  switch (const auto type = static_cast<FrameType>(header.type)) {
    case FrameType::ping:
      return sendUnnumbered(FrameType::pong);
    case FrameType::pong:
      return;
    case FrameType::call:
    case FrameType::reply:
    case FrameType::refuse:
      return owner_.sessionFrame(*this, type, body);
    case FrameType::goodbye:
      return die(Error(Code::remote, "control link to " + seed_.peer->name(), "peer closed"));
    case FrameType::info:
    case FrameType::reject:
      break;
  }
  linkNonsense("a greeting in the middle of a link");
}

void Session::linkLost(const std::string& why) {
  kernelHeard_ = std::max(kernelHeard_, owner_.loop().now() - owner_.lifeTimes().ping);
  lose(why);
}

void Session::linkNonsense(const std::string& why) {
  die(Error(Code::remote, "control link to " + seed_.peer->name(), "the peer sent nonsense: " + why));
}

void Session::dropConnection() {
  if (!io_) return;
  io_->close();
  owner_.bury(std::move(io_));
}

void Session::lose(const std::string& why) {
  dropConnection();
  if (closing_ || state_ == State::dead) return;
  WEFT_LOG(info, "control link to %s lost (%s); dialling again", seed_.peer->name().c_str(), why.c_str());
  state_ = State::lost;
  silentSince_ = kernelHeard_;
  seed_.peer->setSettled(false);
  frames_.rewind();
  redial();
  scheduleLook(owner_.loop().now());
}

void Session::redial() {
  const LifeTimes& times = owner_.lifeTimes();
  const auto addresses = static_cast<int64_t>(seed_.addresses.size());
  DialPlan plan;
  plan.kind = HelloKind::resume;
  plan.self = owner_.self();
  plan.peer = seed_.peer->incarnation();
  plan.secret = seed_.linkKey;
  plan.addresses = seed_.addresses;
  plan.own = owner_.addresses();
  plan.connectPatience = std::clamp(times.redial / addresses, Milliseconds(20), Milliseconds(1000));
  plan.answerPatience = std::max(times.redial, Milliseconds(20));
  dial_ = std::make_unique<Dial>(owner_.loop(), *this, std::move(plan));
  dial_->start();
}

void Session::dialLinked(Linked linked) {
  WEFT_LOG(info, "control link to %s stands again", seed_.peer->name().c_str());
  attach(std::move(linked.socket), linked.info);
}

void Session::dialRefused(const Error& why) {
  die(Error(Code::remote, "control link to " + seed_.peer->name(), why.detail()));
}

void Session::dialGone(const Error& why) {
  die(Error(Code::remote, "control link to " + seed_.peer->name(), why.detail()));
}

void Session::dialContact() {
  kernelHeardBeforeContact_ = kernelHeard_;
  processHeardBeforeContact_ = processHeard_;
  kernelAnswered(owner_.loop().now());
}

void Session::dialMistaken() {
  kernelHeard_ = kernelHeardBeforeContact_;
  processHeard_ = processHeardBeforeContact_;
}

// What a fabric over sockets held back during an outage may take as long again to come.
void Session::settleAfterOutage(TimePoint now) {
  const auto outage = std::min<Nanoseconds>(now - silentSince_, kLongestSettling);
  if (outage >= owner_.lifeTimes().redial) settlesAt_ = std::max(settlesAt_, now + outage);
  seed_.peer->setSettled(now >= settlesAt_);
}

void Session::heard() {
  processHeard_ = owner_.loop().now();
  seed_.peer->setAnswers(true);
  if (!warned_ && !hostWarned_) return;
  warned_ = hostWarned_ = false;
  WEFT_LOG(info, "%s answers again", seed_.peer->name().c_str());
}

// While a look is late, this process itself was stopped or starved, and could have heard nothing: that time
// says nothing about the peer, and is not counted.
void Session::look() {
  const TimePoint now = owner_.loop().now();
  const LifeTimes& times = owner_.lifeTimes();
  const auto late = now - lookDue_;
  kernelHeard_ = std::min(kernelHeard_ + late, now);
  processHeard_ = std::min(processHeard_ + late, now);
  fabricHeard_ = std::max(std::min(fabricHeard_ + late, now), seed_.peer->lastSeenOnFabric());
  if (state_ == State::up) seed_.peer->setSettled(now >= settlesAt_);
  lookAtKernel(now);
  if (state_ != State::dead) lookAtProcess(now);
  if (state_ == State::dead) return;
  if (io_ && now - lastPing_ >= times.ping) {
    lastPing_ = now;
    if (io_->queued() < kWriteAhead) sendUnnumbered(FrameType::ping);
  }
  scheduleLook(now);
}

// Every ping must be acknowledged by the other kernel, whether or not the process reads it. When the
// connection we have is silent every address is tried afresh, until the bound: it is that long since switches
// fail over and virtual machines move in less.
void Session::lookAtKernel(TimePoint now) {
  const LifeTimes& times = owner_.lifeTimes();
  if (io_) noteAcks(now);
  const auto silence = now - kernelHeard_;
  if (now - hostHeard() >= times.kernel) return hostSilent(now);
  if (silence >= times.hostWarn && !hostWarned_) warnOfHost(now);
  if (io_ && silence >= times.redial)
    lose(format("nothing acknowledged for %d ms", static_cast<int>(times.redial.count())));
}

// With nothing outstanding the last ping was acknowledged, when is known. Else only news counts: repeated
// acknowledgements arrive also where nothing of ours gets through.
void Session::noteAcks(TimePoint now) {
  const auto acks = io_->acks();
  if (!acks) return;
  if (!acks->outstanding) {
    kernelAnswered(now - std::min(acks->sinceAck, owner_.lifeTimes().ping));
  } else if (acks->bytesAcked != bytesAcked_) {
    kernelAnswered(now - acks->sinceAck);
  }
  bytesAcked_ = acks->bytesAcked;
}

// While its host is silent the process cannot be heard. That time is not held against it, but for the part in
// which hosts are silent for other reasons: then even one that answers now and then is given up in the end.
void Session::kernelAnswered(TimePoint when) {
  if (when <= kernelHeard_) return;
  const auto outage = when - kernelHeard_ - owner_.lifeTimes().hostWarn;
  if (outage > Nanoseconds(0)) processHeard_ = std::min(processHeard_ + outage, when);
  kernelHeard_ = when;
}

void Session::warnOfHost(TimePoint now) {
  const LifeTimes& times = owner_.lifeTimes();
  hostWarned_ = true;
  const char* fabric =
      now - fabricHeard_ < times.hostWarn ? "the fabric works" : "the fabric is silent as well";
  WEFT_LOG(warn,
           "the host of %s has acknowledged nothing for %d ms on the control network, %s; it is given up "
           "when both "
           "have been silent for %d ms (WEFT_KERNEL_TIMEOUT)",
           seed_.peer->name().c_str(), toMilliseconds(now - kernelHeard_), fabric,
           static_cast<int>(times.kernel.count()));
}

void Session::hostSilent(TimePoint now) {
  die(Error(Code::remote, "control link to " + seed_.peer->name(),
            format("its host has acknowledged nothing for %d ms, and the fabric is silent as well "
                   "(WEFT_KERNEL_TIMEOUT); it is down or cut off",
                   toMilliseconds(now - hostHeard()))));
}

void Session::lookAtProcess(TimePoint now) {
  const LifeTimes& times = owner_.lifeTimes();
  if (now - processHeard_ >= times.silent) seed_.peer->setAnswers(false);
  if (now - kernelHeard_ >= times.redial) return;  // its host is what is silent
  const auto silence = now - processHeard_;
  const int milliseconds = toMilliseconds(silence);
  if (silence >= times.giveUp) {
    return die(Error(
        Code::timeout, "control link to " + seed_.peer->name(),
        format("the process has not answered for %d ms (WEFT_PEER_TIMEOUT), its host does", milliseconds)));
  }
  if (silence < times.warn || warned_) return;
  warned_ = true;
  WEFT_LOG(
      warn,
      "%s has not answered for %d ms, but its host does; is the process stopped? It is given up after %d ms",
      seed_.peer->name().c_str(), milliseconds, static_cast<int>(times.giveUp.count()));
}

// The next ping, or earlier where a bound would pass unseen until then.
void Session::scheduleLook(TimePoint now) {
  const LifeTimes& times = owner_.lifeTimes();
  TimePoint next = now + times.ping;
  const auto sooner = [&](TimePoint due) {
    if (due > now) next = std::min(next, due);
  };
  if (io_) sooner(kernelHeard_ + times.redial);
  if (!hostWarned_) sooner(kernelHeard_ + times.hostWarn);
  sooner(hostHeard() + times.kernel);
  sooner(settlesAt_);
  sooner(processHeard_ + times.silent);
  sooner(processHeard_ + times.giveUp);
  if (!warned_) sooner(processHeard_ + times.warn);
  lookDue_ = next;
  lookTimer_.at(next);
}

void Session::die(const Error& reason) {
  if (state_ == State::dead) return;
  state_ = State::dead;
  lookTimer_.cancel();
  dropConnection();
  if (dial_) owner_.bury(std::move(dial_));
  frames_.clear();
  seed_.peer->markDead(reason);
  owner_.sessionDead(*this, reason);
}

}  // namespace weft::control
