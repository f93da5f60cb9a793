// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/control_loop.h"

#include <algorithm>
#include <sys/epoll.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/reserve.h"
#include "src/control/addresses.h"

namespace weft::control {

namespace {

constexpr Milliseconds kGoodbyePatience{500};
constexpr Milliseconds kLongestTick{3'600'000};

std::string withoutPort(SocketAddress address) {
  if (address.length == 0) return "unknown address";
  const std::string text = address.text();
  return text.substr(0, text.rfind(':'));
}

}  // namespace

ControlLoop::ControlLoop(ControlLoopParts parts, std::unique_ptr<EventLoop> loop)
    : parts_(std::move(parts)),
      times_(parts_.options.config),
      loop_(std::move(loop)),
      mailWatch_(*loop_, [](uint32_t) {}) {}

Status ControlLoop::start(std::vector<Fd> listeners) {
  TRY(mailWatch_.start(parts_.mailbox->fd(), EPOLLIN));
  acceptor_ = std::make_unique<Acceptor>(*loop_, *this);
  return acceptor_->start(std::move(listeners));
}

// The thread:

void ControlLoop::run() {
  const MustNotFail nobodyToTell;
  std::unique_lock turn(turnMutex_);
  while (!stopping_) {
    runOnce(&turn, nextTick_);
    tick();
  }
  close(&turn);
}

void ControlLoop::runOnce(std::unique_lock<std::mutex>* turn, TimePoint latest) {
  sleepsUntil_ = std::min(latest, loop_->nextTimer());
  const int patience = loop_->millisecondsUntil(sleepsUntil_);
  turn->unlock();
  const EventLoop::Events events = loop_->wait(patience);
  turn->lock();
  handle(events);
}

void ControlLoop::handle(const EventLoop::Events& events) {
  loop_->dispatch(events);
  for (const Mailbox::Work& work : parts_.mailbox->take()) work();
  deleteDeferred();
}

// Whoever waits for an answer spins; on a machine with a processor for each spinner the control thread would
// get one only milliseconds later. So its ticks are done here, too: to wake it for each would set it against
// the spinners. Taking the mail also takes away what wakes the thread, so what it has to do earlier than it
// knows has to wake it again.
void ControlLoop::runInline() {
  if (inForkedChild()) return;
  const std::unique_lock turn(turnMutex_, std::try_to_lock);
  if (!turn || stopping_ || closing_) return;
  const MustNotFail nobodyToTell;
  handle(loop_->wait(0));
  tick();
  if (stopping_ || std::min(nextTick_, loop_->nextTimer()) < sleepsUntil_) parts_.mailbox->signal();
}

void ControlLoop::deleteDeferred() {
  deferredIo_.clear();
  deferredDials_.clear();
  deferredLinks_.clear();
}

void ControlLoop::tick() {
  const TimePoint now = loop_->now();
  const bool wanted = tickWanted_.exchange(false, std::memory_order_acq_rel);
  if (stopping_ || (!wanted && now < nextTick_)) return;
  Milliseconds pause = kLongestTick;
  if (parts_.options.handler)
    pause = std::clamp(parts_.options.handler->onTick(now), Milliseconds(0), kLongestTick);
  nextTick_ = now + pause;
}

// Goodbyes leave while everything else is taken down; a peer that does not take its own gets no more than our
// patience.
void ControlLoop::close(std::unique_lock<std::mutex>* turn) {
  closing_ = true;
  const Error closed(Code::unavailable, "control links", "this process closed them");
  acceptor_.reset();
  parts_.listeners->clear();
  calls_.failAll(closed);
  asked_.clear();
  std::erase_if(links_, [](const auto& entry) { return entry.second->state() == Link::State::opening; });
  for (auto& [process, link] : links_) link->goodbye();
  const auto drained = [](const auto& entry) { return entry.second->drained(); };
  const TimePoint latest = loop_->now() + kGoodbyePatience;
  while (!std::all_of(links_.begin(), links_.end(), drained) && loop_->now() < latest) runOnce(turn, latest);
  mailWatch_.stop();  // before the descriptor is closed: its number may be another hub's at once
  parts_.mailbox->close();
  for (auto& [process, link] : links_) link->peer()->markDead(closed);
  if (selfLink_) selfLink_->peer().markDead(closed);
  links_.clear();
  selfLink_.reset();
  deleteDeferred();
}

// Connections that come in:

std::variant<Key128, Answer> ControlLoop::secretFor(const Hello& hello) {
  if (hello.to != parts_.self) return Answer::otherProcess;
  if (hello.kind == HelloKind::resume) {
    const Link* link = established(hello.from);
    if (!link) return Answer::unknownLink;
    return link->linkKey();
  }
  const auto listener = parts_.listeners->find(hello.listener);
  if (!listener) return Answer::listenerClosed;
  return listener->handle().secret;
}

void ControlLoop::greeted(Greeting greeting) {
  if (greeting.hello.kind == HelloKind::resume) return greetedResume(std::move(greeting));
  greetedOpen(std::move(greeting));
}

void ControlLoop::greetedOpen(Greeting greeting) {
  const Incarnation& from = greeting.hello.from;
  if (from == parts_.self || refusedByFingerprint(greeting)) return;
  Link* old = established(from);
  const bool stale = old && greeting.info.epoch <= old->peerEpoch();
  Link* waiting = opening(from);
  const bool ours = waiting && waiting->shaking() && parts_.self < from;
  if (stale || ours) return rejectCrossed(std::move(greeting));
  if (old)
    old->die(Error(Code::remote, "control link to " + old->peer()->name(), "the peer started it over"));
  std::vector<SocketAddress> cameFrom = {remoteAddress(greeting.socket.get())};  // a path known to work
  cameFrom[0].setPort(greeting.info.addresses.front().port());
  if (cameFrom[0].length == 0) cameFrom.clear();  // gone already
  Link& link = waiting ? *waiting : addLink(from);
  establish(link, {makePeer(from, greeting.info, greeting.socket.get()),
                   greeting.linkKey,
                   {greeting.hello.nonce, greeting.nonce},
                   joinAddresses(std::move(cameFrom), greeting.info.addresses)});
  link.attachAndGreet(std::move(greeting.socket), greeting.info);
  sendWaiting(link);
}

void ControlLoop::greetedResume(Greeting greeting) {
  Link* link = established(greeting.hello.from);
  if (!link) return;
  const bool stale = greeting.info.epoch <= link->peerEpoch();
  const bool ours = link->shaking() && parts_.self < greeting.hello.from;
  if (stale || ours) return rejectCrossed(std::move(greeting));
  link->attachAndGreet(std::move(greeting.socket), greeting.info);
}

void ControlLoop::rejectCrossed(Greeting greeting) {
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::reject);
  const std::byte reason{static_cast<uint8_t>(Reject::crossed)};
  Bytes bytes;
  encodeFrame(header, std::span(&reason, 1), bytes);
  (void)sendSome(greeting.socket.get(), bytes);
  cut(greeting.socket);
}

// The dialler gets our info all the same and comes to the same conclusion. It goes out before anybody here is
// told, as who is told may end this process.
bool ControlLoop::refusedByFingerprint(const Greeting& greeting) {
  const std::string name = greeting.info.host + format(" pid %u", greeting.info.pid);
  const auto mismatch = compareFingerprints(parts_.options.fingerprint, greeting.info.fingerprint, name);
  if (!mismatch) return false;
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::info);
  Bytes bytes;
  encodeFrame(header, ownInfo(nextEpoch(), 0), bytes);
  (void)sendSome(greeting.socket.get(), bytes);
  noteMisfit(greeting.hello.from, *mismatch);
  if (const auto listener = parts_.listeners->find(greeting.hello.listener)) (void)listener->push(*mismatch);
  return true;
}

void ControlLoop::noteMisfit(const Incarnation& peer, const Error& why) {
  constexpr size_t kMostRemembered = 256;
  if (misfits_.size() >= kMostRemembered) misfits_.erase(misfits_.begin());
  misfits_.insert_or_assign(peer, why);
}

const Error& ControlLoop::misfitOr(const Incarnation& peer, const Error& why) const {
  const auto found = misfits_.find(peer);
  return found == misfits_.end() ? why : found->second;
}

void ControlLoop::establish(Link& link, LinkFacts facts) {
  fillScopes(facts.addresses, parts_.addresses);
  link.establish(std::move(facts));
}

std::shared_ptr<PeerImpl> ControlLoop::makePeer(const Incarnation& incarnation, const Info& info, int fd) {
  PeerFacts facts;
  facts.incarnation = incarnation;
  facts.name = info.host + format(" pid %u (", info.pid) + withoutPort(remoteAddress(fd)) + ")";
  facts.fingerprint = info.fingerprint;
  return std::make_shared<PeerImpl>(parts_.mailbox, std::move(facts));
}

Bytes ControlLoop::ownInfo(uint64_t epoch, uint64_t received) {
  Info info;
  info.epoch = epoch;
  info.received = received;
  info.host = placeName();
  info.pid = static_cast<uint32_t>(getpid());
  info.addresses = parts_.addresses;
  info.fingerprint = parts_.options.fingerprint;
  return encodeInfo(info);
}

// The books:

Link* ControlLoop::linkTo(const Incarnation& process) {
  const auto found = links_.find(process);
  return found == links_.end() ? nullptr : found->second.get();
}

Link* ControlLoop::opening(const Incarnation& process) {
  Link* link = linkTo(process);
  return link && link->state() == Link::State::opening ? link : nullptr;
}

Link* ControlLoop::established(const Incarnation& process) {
  Link* link = linkTo(process);
  return link && link->state() != Link::State::opening ? link : nullptr;
}

Link& ControlLoop::addLink(const Incarnation& process) {
  return *(links_[process] = std::make_unique<Link>(*this, process));
}

// Its own code may be on the stack.
void ControlLoop::removeLink(const Link& link) {
  const auto found = links_.find(link.process());
  if (found == links_.end() || found->second.get() != &link) return;
  deferredLinks_.push_back(std::move(found->second));
  links_.erase(found);
}

void ControlLoop::linkDead(Link& link, const Error& reason) {
  const auto peer = link.peer();
  removeLink(link);
  std::erase_if(asked_, [&](const auto& entry) { return entry.second.peer == peer; });
  calls_.failSent(peer->incarnation(), reason);
  if (closing_) return;
  WEFT_LOG(info, "%s", reason.message().c_str());
  for (const auto& queue : parts_.listeners->all()) queue->peerDied(*peer, reason);
  if (parts_.options.handler) parts_.options.handler->onPeerDead(peer, reason);
  wantTick();
}

}  // namespace weft::control
