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

// The thread's turns, connections that come in, calls that go out, and the frames of links.
namespace weft::control {

namespace {

// The time for goodbyes to leave; with the rest of close() it keeps Hub's promise of a second.
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
      self_(parts_.self, parts_.addresses, parts_.options.fingerprint, parts_.protection),
      loop_(std::move(loop)),
      mailWatch_(*loop_, [](uint32_t) {}) {}

Status ControlLoop::start(std::vector<Fd> listeners) {
  TRY(mailWatch_.start(parts_.mailbox->fd(), EPOLLIN));
  acceptor_ = std::make_unique<Acceptor>(
      *loop_, self_.helloFlags(), [this](const Hello& hello) { return secretFor(hello); },
      [this](Greeting greeting) { greeted(std::move(greeting)); });
  return acceptor_->start(std::move(listeners));
}

// The thread:

// Sleeps, handles events and ticks, until stop().
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
  loop_->dropReleased();
}

// A thread that waits for an answer spins. On a machine where each processor has such a spinner, the control
// thread would get a processor only milliseconds later, so the spinner does the ticks here as well. Taking
// the mail also takes the signal away that wakes the control thread. Therefore a timer that is due earlier
// than the thread knows of has to wake it again.
void ControlLoop::runInline() {
  if (inForkedChild()) return;
  const std::unique_lock turn(turnMutex_, std::try_to_lock);
  if (!turn || stopping_ || closing_) return;
  const MustNotFail nobodyToTell;
  handle(loop_->wait(0));
  tick();
  if (stopping_ || std::min(nextTick_, loop_->nextTimer()) < sleepsUntil_) parts_.mailbox->signal();
}

// Calls the handler when it is due or when someone asked for it.
void ControlLoop::tick() {
  const TimePoint now = loop_->now();
  const bool wanted = tickWanted_.exchange(false, std::memory_order_acq_rel);
  if (stopping_ || (!wanted && now < nextTick_)) return;
  Milliseconds pause = kLongestTick;
  if (parts_.options.handler)
    pause = std::clamp(parts_.options.handler->onTick(now), Milliseconds(0), kLongestTick);
  nextTick_ = now + pause;
}

// Goodbyes leave while everything else is taken down. A peer that does not take its goodbye gets no more time
// than kGoodbyePatience.
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
  loop_->dropReleased();
}

// Connections that come in. Two processes may dial each other at the same time, and only one connection is to
// stay: the connection that was dialled by the process with the lower incarnation. Both ends can tell which
// one that is.

// An open has to prove the secret of the listener that it names; a resume has to prove the key of the link.
std::variant<Key256, Answer> ControlLoop::secretFor(const Hello& hello) {
  if (hello.to != self_.incarnation()) return Answer::otherProcess;
  if (hello.kind == HelloKind::resume) {
    const Link* link = established(hello.from);
    if (!link) return Answer::unknownLink;
    return link->linkKey();
  }
  const auto listener = parts_.listeners->find(hello.listener);
  if (!listener) return Answer::listenerClosed;
  return parts_.protection.keyFor(listener->handle().secret, kLinkPurpose);
}

void ControlLoop::greeted(Greeting greeting) {
  if (greeting.hello.kind == HelloKind::resume) return greetedResume(std::move(greeting));
  greetedOpen(std::move(greeting));
}

// A greeting is stale when its epoch is not newer than the link's: it was sent before the link's present
// connection. A newer greeting on a link that is up means that the peer has given us up and begins anew.
void ControlLoop::greetedOpen(Greeting greeting) {
  const Incarnation& from = greeting.hello.from;
  if (from == self_.incarnation() || refusedByFingerprint(greeting)) return;
  Link* old = established(from);
  const bool stale = old && greeting.info.epoch <= old->peerEpoch();
  Link* waiting = opening(from);
  const bool ours = waiting && waiting->shaking() && self_.incarnation() < from;
  if (stale || ours) return rejectCrossed(std::move(greeting));
  if (old)
    old->die(Error(Code::remote, "control link to " + old->peer()->name(), "the peer started it over"));
  // A path that is known to work.
  std::vector<SocketAddress> cameFrom = {remoteAddress(greeting.socket.fd.get())};
  cameFrom[0].setPort(greeting.info.addresses.front().port());
  if (cameFrom[0].length == 0) cameFrom.clear();  // the connection is gone already
  Link& link = waiting ? *waiting : addLink(from);
  establish(link, {makePeer(from, greeting.info, greeting.socket.fd.get()), greeting.linkKey,
                   greeting.binding, joinAddresses(std::move(cameFrom), greeting.info.addresses)});
  link.attachAndGreet(std::move(greeting.socket), greeting.info);
  sendWaiting(link);
}

// The peer dials a lost link anew, maybe before we have seen the loss.
void ControlLoop::greetedResume(Greeting greeting) {
  Link* link = established(greeting.hello.from);
  if (!link) return;
  const bool stale = greeting.info.epoch <= link->peerEpoch();
  const bool ours = link->shaking() && self_.incarnation() < greeting.hello.from;
  if (stale || ours) return rejectCrossed(std::move(greeting));
  link->attachAndGreet(std::move(greeting.socket), greeting.info);
}

// Tells the other end the reason, so that it waits for the connection that stays, and does not dial again at
// once.
void ControlLoop::rejectCrossed(Greeting greeting) {
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::reject);
  const std::byte reason{static_cast<uint8_t>(Reject::crossed)};
  (void)greeting.socket.send(header, std::span(&reason, 1));
  cut(greeting.socket.fd);
}

// The dialling process gets our info all the same, and comes to the same result by itself. The info goes out
// before the listener's user hears of it, as that user may end this process at once.
bool ControlLoop::refusedByFingerprint(Greeting& greeting) {
  const std::string name = greeting.info.host + format(" pid %u", greeting.info.pid);
  const auto mismatch = compareFingerprints(self_.fingerprint(), greeting.info.fingerprint, name);
  if (!mismatch) return false;
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::info);
  (void)greeting.socket.send(header, self_.info(self_.nextEpoch(), 0));
  noteMisfit(greeting.hello.from, *mismatch);
  if (const auto listener = parts_.listeners->find(greeting.hello.listener)) (void)listener->push(*mismatch);
  return true;
}

// The number is bounded: processes that do not fit may come for ever, each with an incarnation of its own.
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
  fillScopes(facts.addresses, self_.addresses());
  link.establish(std::move(facts));
}

std::shared_ptr<PeerImpl> ControlLoop::makePeer(const Incarnation& incarnation, const Info& info, int fd) {
  PeerFacts facts;
  facts.incarnation = incarnation;
  facts.name = info.host + format(" pid %u (", info.pid) + withoutPort(remoteAddress(fd)) + ")";
  facts.fingerprint = info.fingerprint;
  return std::make_shared<PeerImpl>(parts_.mailbox, std::move(facts));
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
  return *(links_[process] = std::make_unique<Link>(LinkWorld{*loop_, times_, self_}, *this, process));
}

// The link's own code may be on the stack, so it is destroyed at the end of the turn.
void ControlLoop::removeLink(const Link& link) {
  const auto found = links_.find(link.process());
  if (found == links_.end() || found->second.get() != &link) return;
  loop_->releaseLater(std::move(found->second));
  links_.erase(found);
}

// All tables are in order before the handler is told: it may start a new call to the same process at once.
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

// Calls that go out:

// A call to a process that is linked is sent at once. Otherwise it waits in the queue of a link that is being
// opened.
void ControlLoop::startCall(uint64_t id, std::shared_ptr<CallState> state, Handle handle, Bytes body) {
  auto call = std::make_unique<PendingCall>(*loop_, [this, id] { expireCall(id); });
  call->state = std::move(state);
  call->handle = std::move(handle);
  call->body = std::move(body);
  call->deadline.after(parts_.options.config.connectTimeout);
  const Incarnation to = call->handle.process;
  calls_.add(id, std::move(call));
  if (to == self_.incarnation()) return sendCall(id, Key256{}, selfPeer());
  if (const Link* link = established(to)) return sendCall(id, link->binding(), *link->peer());
  if (Link* link = opening(to)) return link->calls.push_back(id);
  Link& link = addLink(to);
  link.calls.push_back(id);
  dialFor(link);
}

// The proof binds the call to this link and its direction, so a copy of the call is worth nothing elsewhere.
void ControlLoop::sendCall(uint64_t id, const Key256& binding, PeerImpl& to) {
  PendingCall* call = calls_.find(id);
  if (!call) return;
  call->sent = true;
  CallBody body{id, call->handle.listener, {}, call->body};
  body.proof = callTag(callKey(call->handle.secret), binding, self_.incarnation(), body);
  to.deliver(static_cast<uint16_t>(FrameType::call), encodeCall(body));
}

void ControlLoop::sendWaiting(Link& link) {
  const auto peer = link.peer();
  const Key256 binding = link.binding();
  for (const uint64_t id : std::exchange(link.calls, {})) sendCall(id, binding, *peer);
}

// Dials with the secret of the front call.
void ControlLoop::dialFor(Link& link) {
  const PendingCall* call = calls_.find(link.calls.front());
  if (!call) return nextCall(link);
  DialPlan plan;
  plan.peer = link.process();
  plan.listener = call->handle.listener;
  plan.secret = parts_.protection.keyFor(call->handle.secret, kLinkPurpose);
  plan.addresses = call->handle.addresses;
  fillScopes(plan.addresses, self_.addresses());
  link.dial(std::move(plan));
}

// The front call is decided. The other calls still wait for the link, so the next one is dialled for.
void ControlLoop::nextCall(Link& link) {
  link.calls.pop_front();
  if (!link.calls.empty()) return dialFor(link);
  link.abandon();
  removeLink(link);
}

// The refusal concerns the front call's listener or secret alone.
void ControlLoop::linkRefused(Link& link, const Error& why) {
  calls_.fail(link.calls.front(), misfitOr(link.process(), why));
  nextCall(link);
}

// The process cannot be reached, which decides every call.
void ControlLoop::linkUnreachable(Link& link, const Error& why) {
  for (const uint64_t id : link.calls) calls_.fail(id, misfitOr(link.process(), why));
  link.abandon();
  removeLink(link);
}

void ControlLoop::linkOpened(Link& link, Linked linked) {
  const std::string name = linked.info.host + format(" pid %u", linked.info.pid);
  if (const auto mismatch = compareFingerprints(self_.fingerprint(), linked.info.fingerprint, name)) {
    noteMisfit(link.process(), *mismatch);
    return linkRefused(link, *mismatch);
  }
  const PendingCall* first = calls_.find(link.calls.front());
  establish(
      link,
      {makePeer(link.process(), linked.info, linked.socket.fd.get()), linked.linkKey, linked.binding,
       joinAddresses(first ? first->handle.addresses : std::vector<SocketAddress>(), linked.info.addresses)});
  link.attach(std::move(linked.socket), linked.info);
  sendWaiting(link);
}

// The user gave the call up before it was decided. Where the dial was for this call, the next call takes its
// place, or the dial ends.
void ControlLoop::forgetCall(uint64_t id) {
  const PendingCall* call = calls_.find(id);
  if (!call) return;
  Link* link = call->sent ? nullptr : opening(call->handle.process);
  calls_.remove(id);
  if (!link) return;
  if (link->calls.front() == id) return nextCall(*link);
  std::erase(link->calls, id);
}

// NCCL hands out a rank's handles before it has those of all its peers, and accepts after that. So a rank
// that comes late to the first collective holds up the others for as long. The link watches meanwhile whether
// the peer lives.
bool ControlLoop::prolong(PendingCall& call) const {
  const Config& config = parts_.options.config;
  if (!call.sent || call.prolonged || config.acceptTimeout <= config.connectTimeout) return false;
  call.prolonged = true;
  call.deadline.after(config.acceptTimeout - config.connectTimeout);
  return true;
}

// The time of a call is over: it fails with the most useful words that are known.
void ControlLoop::expireCall(uint64_t id) {
  PendingCall* call = calls_.find(id);
  if (!call || prolong(*call)) return;
  const Link* waitsFor = call->sent ? nullptr : opening(call->handle.process);
  const Link* link = established(call->handle.process);
  const Config& config = parts_.options.config;
  const Milliseconds limit = call->prolonged ? config.acceptTimeout : config.connectTimeout;
  std::string detail = format("no answer within %d ms (%s)", static_cast<int>(limit.count()),
                              call->prolonged ? "WEFT_ACCEPT_TIMEOUT" : "WEFT_CONNECT_TIMEOUT");
  if (waitsFor && !waitsFor->trouble().empty()) detail += "; last tries: " + waitsFor->trouble();
  if (link)
    detail += link->peer()->answers() ? "; it is linked but has not accepted" : "; it does not answer";
  call->state->fail(Error(Code::timeout, "connecting to " + call->handle.addresses.front().text(), detail));
  forgetCall(id);
}

// Frames:

void ControlLoop::linkBrought(Link& link, uint16_t type, std::span<const std::byte> body) {
  brought(link.peer(), link.binding(), type, body);
}

// A message of the hub's own type that does not decode is ignored: the link has checked its frame.
void ControlLoop::brought(const std::shared_ptr<PeerImpl>& from, const Key256& binding, uint16_t type,
                          std::span<const std::byte> body) {
  if (type >= kFirstUserType) return onMessage(from, type, body);
  const auto kind = static_cast<FrameType>(type);
  if (kind == FrameType::call) {
    if (const auto call = decodeCall(body)) onCall(from, binding, *call);
  } else if (kind == FrameType::reply) {
    if (const auto reply = decodeReply(body)) onReply(from, *reply);
  } else if (kind == FrameType::refuse) {
    const auto refusal = decodeRefuse(body);
    const PendingCall* call = refusal ? calls_.find(refusal->id) : nullptr;
    if (call && call->handle.process == from->incarnation()) calls_.fail(refusal->id, refusal->why);
  }
}

void ControlLoop::onMessage(const std::shared_ptr<PeerImpl>& from, uint16_t type,
                            std::span<const std::byte> body) {
  if (closing_ || !parts_.options.handler) return;
  parts_.options.handler->onMessage(from, type, body);
  wantTick();
}

void ControlLoop::onReply(const std::shared_ptr<PeerImpl>& from, const ReplyBody& reply) {
  const PendingCall* call = calls_.find(reply.id);
  if (!call || call->handle.process != from->incarnation()) return;
  call->state->succeed(from, reply.body);
  calls_.remove(reply.id);
}

// The proof alone decides whether a call is taken. A listener whose queue is full refuses the call, and never
// waits.
void ControlLoop::onCall(const std::shared_ptr<PeerImpl>& from, const Key256& binding, const CallBody& call) {
  if (closing_) return;
  const auto refuseWith = [&](const char* why) {
    refuseCall(*from, call.id,
               Error(Code::remote, "connecting to " + placeName() + format(" pid %d", getpid()), why));
  };
  const auto listener = parts_.listeners->find(call.listener);
  if (!listener) return refuseWith("listener closed");
  if (!equalSecret(call.proof,
                   callTag(callKey(listener->handle().secret), binding, from->incarnation(), call))) {
    return refuseWith("the listener there does not know the handle's secret");
  }
  const uint64_t id = ++lastRequest_;
  asked_[id] = {from, call.id, call.listener};
  if (listener->push(Request{from, id, Bytes(call.body.begin(), call.body.end())})) return wantTick();
  asked_.erase(id);
  refuseWith("too many connections wait at this listener");
}

void ControlLoop::answer(const Request& request, std::span<const std::byte> body) {
  const auto found = asked_.find(request.id);
  if (found == asked_.end()) return;  // the listener was closed or the peer died meanwhile
  if (body.size() > kMaxBody)
    return refuse(request, Error(Code::internal, "accepting", "the answer is too large"));
  found->second.peer->deliver(static_cast<uint16_t>(FrameType::reply),
                              encodeReply({found->second.remoteId, body}));
  asked_.erase(found);
}

void ControlLoop::refuse(const Request& request, const Error& why) {
  const auto found = asked_.find(request.id);
  if (found == asked_.end()) return;
  refuseCall(*found->second.peer, found->second.remoteId, why);
  asked_.erase(found);
}

void ControlLoop::refuseCall(PeerImpl& peer, uint64_t remoteId, const Error& why) {
  peer.deliver(static_cast<uint16_t>(FrameType::refuse), encodeRefuse({remoteId, why}));
}

// Refuses the requests that were taken or wait at this listener. The table does not know it any more, so no
// new one comes.
void ControlLoop::closeListener(uint32_t id) {
  const Error closed(Code::remote, "connecting to " + placeName() + format(" pid %d", getpid()),
                     "listener closed");
  for (auto it = asked_.begin(); it != asked_.end();) {
    if (it->second.listener != id) {
      ++it;
      continue;
    }
    refuseCall(*it->second.peer, it->second.remoteId, closed);
    it = asked_.erase(it);
  }
}

PeerImpl& ControlLoop::selfPeer() {
  if (selfLink_) return selfLink_->peer();
  const std::string name = placeName() + format(" pid %d (this process)", getpid());
  PeerFacts facts{self_.incarnation(), name, self_.fingerprint()};
  selfLink_ = std::make_unique<SelfLink>(std::make_shared<PeerImpl>(parts_.mailbox, std::move(facts)),
                                         [this](const std::shared_ptr<PeerImpl>& from, uint16_t type,
                                                const Bytes& body) { brought(from, Key256{}, type, body); });
  return selfLink_->peer();
}

}  // namespace weft::control
