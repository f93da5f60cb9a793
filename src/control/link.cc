// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/link.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/presence.h"
#include "src/control/addresses.h"

// A link's connection and frames first, the watch over its peer after them.
namespace weft::control {

namespace {

constexpr size_t kWriteAhead = 128 * 1024;  // bytes encoded and not yet in the socket
constexpr uint64_t kArrivalsPerAck = 16;    // pings and our own frames carry an acknowledgement otherwise
// Bounds of the intervals, in real time: settings beyond them would make the watch too slow or too busy.
constexpr Milliseconds kLongestPing{1000};
constexpr Milliseconds kShortestPing{5};
constexpr Milliseconds kLongestUntilRedial{1500};
constexpr Milliseconds kLongestUntilHostWarn{3000};
constexpr Milliseconds kLongestSettling{120'000};  // the longest pause of TCP (TCP_RTO_MAX)

int toMilliseconds(Nanoseconds time) {
  return static_cast<int>(std::chrono::duration_cast<Milliseconds>(time).count());
}

}  // namespace

Link::Link(const LinkWorld& world, Owner& owner, const Incarnation& process)
    : loop_(world.loop),
      times_(world.times),
      self_(world.self),
      owner_(owner),
      process_(process),
      lookTimer_(world.loop, [this] { look(); }) {}

Link::~Link() {
  if (facts_.peer) facts_.peer->connectSink(nullptr);
}

// Neither a connection nor a dial outlives the state that it belongs to. False: `next` may not follow the
// present state, and nothing was done.
bool Link::enter(State next) {
  // A link that is up comes up again when the peer dials anew before we have seen why.
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
  if (state_ == State::lost && next == State::up) settleAfterOutage(loop_.now());
  if (next != State::up) frames_.rewind();
  state_ = next;
  return true;
}

void Link::leaveConnection() {
  if (io_) {
    io_->close();
    loop_.releaseLater(std::move(io_));
  }
  leaveDial();
}

// An event of the same round may be about the dial, so the dial hangs up before it is released.
void Link::leaveDial() {
  if (!dial_) return;
  dial_->hangUp();
  loop_.releaseLater(std::move(dial_));
}

void Link::dial(DialPlan plan) {
  leaveDial();
  dial_ = std::make_unique<Dial>(loop_, self_, std::move(plan),
                                 [this](DialReport report) { onDial(std::move(report)); });
  dial_->start();
}

void Link::establish(LinkFacts facts) {
  facts_ = std::move(facts);
  kernelHeard_ = processHeard_ = fabricHeard_ = silentSince_ = lookDue_ = loop_.now();
  facts_.peer->connectSink(this);
}

// The peer's info says which of our frames it has; the others are sent again on this connection.
void Link::attach(SealedSocket socket, const Info& info) {
  if (!enter(State::up)) return cut(socket.fd);
  if (!frames_.acknowledge(info.received)) return onNonsense("it acknowledges what was never sent");
  frames_.rewind();
  peerEpoch_ = info.epoch;
  bytesAcked_ = 0;
  const TimePoint now = loop_.now();
  kernelHeard_ = lastPing_ = now;
  io_ = std::make_unique<LinkIo>(loop_, std::move(socket),
                                 [this](const LinkReport& report) { onConnection(report); });
  if (!io_->start()) return lose("out of descriptors");
  heard();
  pump();
  scheduleLook(now);
}

// The info has to be the first frame, so it goes straight into the fresh socket's buffer, which has room for
// it.
void Link::attachAndGreet(SealedSocket socket, const Info& info) {
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::info);
  (void)socket.send(header, self_.info(self_.nextEpoch(), frames_.received()));
  attach(std::move(socket), info);
}

void Link::deliver(uint16_t type, Bytes body) {
  if (state_ == State::dead || closing_) return;
  frames_.push(type, std::move(body));
  pump();
}

// Writes until all is in the socket or the socket is full. In the second case the socket's report of room
// calls it again.
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

// A full queue needs no ping: its bytes are acknowledged as well.
void Link::ping() {
  if (io_->queued() < kWriteAhead) sendUnnumbered(FrameType::ping);
}

void Link::goodbye() {
  if (closing_) return;
  closing_ = true;
  leaveDial();
  if (!io_) return;
  while (const auto* frame = frames_.nextUnsent()) writeNumbered(*frame);
  sendUnnumbered(FrameType::goodbye);
  onRoom();
}

void Link::onRoom() {
  if (!closing_) return pump();
  if (io_ && io_->queued() == 0) io_->endWriting();
}

bool Link::drained() const {
  return !io_ || io_->closed();
}

void Link::onConnection(const LinkReport& report) {
  if (const auto* frame = std::get_if<FrameCame>(&report)) return onFrame(frame->header, frame->body);
  if (const auto* lost = std::get_if<ConnectionLost>(&report)) return onLost(*lost);
  if (const auto* nonsense = std::get_if<NonsenseCame>(&report)) return onNonsense(nonsense->why);
  onRoom();
}

void Link::onFrame(const FrameHeader& header, std::span<const std::byte> body) {
  heard();
  if (!frames_.acknowledge(header.received)) return onNonsense("it acknowledges what was never sent");
  if (!acceptNumber(header)) return;
  dispatch(header, body);
  if (io_ && unacknowledgedArrivals_ >= kArrivalsPerAck) sendUnnumbered(FrameType::pong);
}

// True: the frame is fresh, or carries no number. False: a duplicate, or nonsense, which has ended the link.
bool Link::acceptNumber(const FrameHeader& header) {
  if (header.sequence == 0) return true;
  const auto arrival = frames_.arrive(header.sequence);
  if (arrival == FrameQueue::Arrival::gap) onNonsense("a frame is missing");
  if (arrival != FrameQueue::Arrival::fresh) return false;
  unacknowledgedArrivals_++;
  return true;
}

void Link::dispatch(const FrameHeader& header, std::span<const std::byte> body) {
  if (header.type >= kFirstUserType) return owner_.linkBrought(*this, header.type, body);
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::ping:
      return sendUnnumbered(FrameType::pong);
    case FrameType::pong:
      return;
    case FrameType::call:
    case FrameType::reply:
    case FrameType::refuse:
      return owner_.linkBrought(*this, header.type, body);
    case FrameType::goodbye:
      return die(Error(Code::remote, "control link to " + facts_.peer->name(), "peer closed"));
    case FrameType::info:
    case FrameType::reject:
      break;
  }
  onNonsense("a greeting in the middle of a link");
}

// A connection that the peer's kernel ends counts as a sign of it, as old as a ping's interval. One that our
// kernel gives up does not: it would put the end of a host that is silent off each time.
void Link::onLost(const ConnectionLost& lost) {
  if (lost.bySign) kernelHeard_ = std::max(kernelHeard_, loop_.now() - times_.ping);
  lose(lost.why);
}

void Link::onNonsense(const std::string& why) {
  die(Error(Code::remote, "control link to " + facts_.peer->name(), "the peer sent nonsense: " + why));
}

void Link::lose(const std::string& why) {
  if (closing_) return leaveConnection();
  if (!enter(State::lost)) return;
  WEFT_LOG(info, "control link to %s lost (%s); dialling again", facts_.peer->name().c_str(), why.c_str());
  facts_.peer->setSettled(false);
  redial();
  scheduleLook(loop_.now());
}

void Link::redial() {
  const auto addresses = static_cast<int64_t>(facts_.addresses.size());
  DialPlan plan;
  plan.kind = HelloKind::resume;
  plan.peer = process_;
  plan.secret = facts_.linkKey;
  plan.addresses = facts_.addresses;
  plan.received = frames_.received();
  plan.connectPatience = std::clamp(times_.redial / addresses, Milliseconds(20), Milliseconds(1000));
  plan.answerPatience = std::max(times_.redial, Milliseconds(20));
  dial(std::move(plan));
}

void Link::onDial(DialReport report) {
  if (auto* linked = std::get_if<Linked>(&report)) return dialLinked(std::move(*linked));
  if (const auto* refused = std::get_if<DialRefused>(&report)) return dialRefused(refused->why);
  if (const auto* gone = std::get_if<DialGone>(&report)) return dialGone(gone->why);
  if (std::holds_alternative<DialContact>(report)) return dialContact();
  dialMistaken();
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

// The watch over the peer's life; host and process are watched apart.

LifeTimes::LifeTimes(const Config& config)
    : ping(std::clamp(std::min(config.kernelTimeout / 3, config.peerSilentWarn / 4), kShortestPing,
                      kLongestPing)),
      silent(ping * 5 / 2),
      warn(config.peerSilentWarn),
      giveUp(config.peerTimeout),
      redial(std::min(config.kernelTimeout / 2, kLongestUntilRedial)),
      hostWarn(std::min(config.kernelTimeout / 2, kLongestUntilHostWarn)),
      kernel(config.kernelTimeout) {}

// A kernel answered at one of the peer's addresses. The old values are kept, as the address may be another's
// by now.
void Link::dialContact() {
  if (state_ == State::opening) return;
  kernelHeardBeforeContact_ = kernelHeard_;
  processHeardBeforeContact_ = processHeard_;
  kernelAnswered(loop_.now());
}

void Link::dialMistaken() {
  if (state_ == State::opening) return;
  kernelHeard_ = kernelHeardBeforeContact_;
  processHeard_ = processHeardBeforeContact_;
}

void Link::settleAfterOutage(TimePoint now) {
  const Nanoseconds outage = now - silentSince_;
  if (outage >= times_.redial)
    settlesAt_ = std::max(settlesAt_, now + std::min<Nanoseconds>(kSettling * outage, kLongestSettling));
  facts_.peer->setSettled(now >= settlesAt_);
}

void Link::heard() {
  processHeard_ = loop_.now();
  facts_.peer->setAnswers(true);
  if (!warned_ && !hostWarned_) return;
  warned_ = hostWarned_ = false;
  WEFT_LOG(info, "%s answers again", facts_.peer->name().c_str());
}

// A late look means that this process itself was stopped or starved, and could hear nothing. That time says
// nothing about the peer, and is not counted as its silence.
void Link::look() {
  const TimePoint now = loop_.now();
  const auto late = now - lookDue_;
  kernelHeard_ = std::min(kernelHeard_ + late, now);
  processHeard_ = std::min(processHeard_ + late, now);
  fabricHeard_ = std::max(std::min(fabricHeard_ + late, now), facts_.peer->lastSeenOnFabric());
  if (state_ == State::up) facts_.peer->setSettled(now >= settlesAt_);
  lookAtKernel(now);
  if (state_ != State::dead) lookAtProcess(now);
  if (state_ == State::dead) return;
  if (io_ && now - lastPing_ >= times_.ping) {
    lastPing_ = now;
    ping();
  }
  scheduleLook(now);
}

// The other kernel acknowledges every ping, whether or not the process reads it. When the present connection
// is silent, every address is tried afresh until the bound. The bound is that long because switches fail
// over, and virtual machines move, in less time.
void Link::lookAtKernel(TimePoint now) {
  if (io_) noteAcks(now);
  const auto silence = now - kernelHeard_;
  if (now - hostHeard() >= times_.kernel) return hostSilent(now);
  if (silence >= times_.hostWarn && !hostWarned_) warnOfHost(now);
  if (io_ && silence >= times_.redial)
    lose(format("nothing acknowledged for %d ms", static_cast<int>(times_.redial.count())));
}

// Nothing is outstanding: the last ping was acknowledged, and the kernel knows when. Otherwise only an
// acknowledgement of new bytes counts: repeated ones arrive even where nothing of ours gets through.
void Link::noteAcks(TimePoint now) {
  const auto acks = io_->acks();
  if (!acks) return;
  if (!acks->outstanding) {
    kernelAnswered(now - std::min(acks->sinceAck, times_.ping));
  } else if (acks->bytesAcked != bytesAcked_) {
    kernelAnswered(now - acks->sinceAck);
  }
  bytesAcked_ = acks->bytesAcked;
}

// While its host is silent, a process cannot be heard, so an outage is not held against it. The part of the
// outage before times_.hostWarn counts nevertheless, as a host is silent that long for other reasons: so a
// process that answers only now and then is given up in the end.
void Link::kernelAnswered(TimePoint when) {
  if (when <= kernelHeard_) return;
  const auto outage = when - kernelHeard_ - times_.hostWarn;
  if (outage > Nanoseconds(0)) processHeard_ = std::min(processHeard_ + outage, when);
  kernelHeard_ = when;
}

void Link::warnOfHost(TimePoint now) {
  hostWarned_ = true;
  const char* fabric =
      now - fabricHeard_ < times_.redial ? "the fabric works" : "the fabric is silent as well";
  WEFT_LOG(warn,
           "the host of %s has acknowledged nothing for %d ms on the control network, %s; it is given up "
           "when both "
           "have been silent for %d ms (WEFT_KERNEL_TIMEOUT)%s",
           facts_.peer->name().c_str(), toMilliseconds(now - kernelHeard_), fabric,
           static_cast<int>(times_.kernel.count()), nextStepOfCut().c_str());
}

void Link::hostSilent(TimePoint now) {
  die(Error(Code::remote, "control link to " + facts_.peer->name(),
            format("its host has acknowledged nothing for %d ms, and the fabric is silent as well "
                   "(WEFT_KERNEL_TIMEOUT); it is down or cut off%s",
                   toMilliseconds(now - hostHeard()), nextStepOfCut().c_str())));
}

// Our own interface first, since a host that is cut off sees all others as silent.
std::string Link::nextStepOfCut() const {
  const auto interfaces = localInterfaces();
  const std::string here = interfaces ? missingHere(self_.addresses(), *interfaces) : std::string();
  return here.empty() ? "; look at its console, then at the switch's ports: weft doctor --hosts" : here;
}

void Link::lookAtProcess(TimePoint now) {
  if (now - processHeard_ >= times_.silent) facts_.peer->setAnswers(false);
  if (now - kernelHeard_ >= times_.redial) return;  // the host is silent, so the process cannot be blamed
  const auto silence = now - processHeard_;
  const int milliseconds = toMilliseconds(silence);
  if (silence >= times_.giveUp) {
    return die(Error(
        Code::timeout, "control link to " + facts_.peer->name(),
        format("the process has not answered for %d ms (WEFT_PEER_TIMEOUT), its host does; look at it there: "
               "cat /proc/PID/status, py-spy dump --pid PID",
               milliseconds)));
  }
  if (warned_) return;
  const std::string halted = silence >= times_.silent ? haltedText() : std::string();
  if (halted.empty() && silence < times_.warn) return;
  warned_ = true;
  WEFT_LOG(warn, "%s has not answered for %d ms, but its host does; %s It is given up after %d ms; %s",
           facts_.peer->name().c_str(), milliseconds,
           halted.empty() ? "is the process stopped?" : halted.c_str(),
           static_cast<int>(times_.giveUp.count()),
           "kill -CONT PID lets a stopped one go on, cat /proc/PID/status says more");
}

// Of a process of this host, /proc tells at once what the silence of one elsewhere only suggests.
std::string Link::haltedText() const {
  const auto& fields = facts_.peer->fingerprint();
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [](const FingerprintField& one) { return one.name == kProcessField; });
  if (field == fields.end()) return {};
  switch (stateOf(Presence::ofKey(field->value))) {
    case ProcessState::stopped:
      return "the process is stopped.";
    case ProcessState::traced:
      return "a debugger holds the process.";
    case ProcessState::waitsInKernel:
      return "the process waits inside the kernel, mostly for a disk or a file server.";
    default:
      return {};
  }
}

// At the next ping, or earlier where a bound would pass unseen before it.
void Link::scheduleLook(TimePoint now) {
  TimePoint next = now + times_.ping;
  const auto sooner = [&](TimePoint due) {
    if (due > now) next = std::min(next, due);
  };
  if (io_) sooner(kernelHeard_ + times_.redial);
  if (!hostWarned_) sooner(kernelHeard_ + times_.hostWarn);
  sooner(hostHeard() + times_.kernel);
  sooner(settlesAt_);
  sooner(processHeard_ + times_.silent);
  sooner(processHeard_ + times_.giveUp);
  if (!warned_) sooner(processHeard_ + times_.warn);
  lookDue_ = next;
  lookTimer_.at(next);
}

}  // namespace weft::control
