// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// The second half of ControlLoop: calls on their way out, and what frames bring in.
#include <unistd.h>
#include <utility>

#include "src/base/log.h"
#include "src/base/process.h"
#include "src/control/addresses.h"
#include "src/control/control_loop.h"

namespace weft::control {

// Calls that go out:

void ControlLoop::startCall(uint64_t id, std::shared_ptr<CallState> state, Handle handle, Bytes body) {
  auto call = std::make_unique<PendingCall>(*loop_, [this, id] { expireCall(id); });
  call->state = std::move(state);
  call->handle = std::move(handle);
  call->body = std::move(body);
  call->deadline.after(parts_.options.config.connectTimeout);
  const Incarnation to = call->handle.process;
  calls_.add(id, std::move(call));
  if (to == parts_.self) return sendCall(id, LinkNonces{}, selfPeer());
  if (const Link* link = established(to)) return sendCall(id, link->nonces(), *link->peer());
  if (Link* link = opening(to)) return link->calls.push_back(id);
  Link& link = addLink(to);
  link.calls.push_back(id);
  dialFor(link);
}

void ControlLoop::sendCall(uint64_t id, const LinkNonces& nonces, PeerImpl& to) {
  PendingCall* call = calls_.find(id);
  if (!call) return;
  call->sent = true;
  CallBody body{id, call->handle.listener, {}, call->body};
  body.proof = callTag(call->handle.secret, nonces, parts_.self, body);
  to.deliver(static_cast<uint16_t>(FrameType::call), encodeCall(body));
}

void ControlLoop::sendWaiting(Link& link) {
  const auto peer = link.peer();
  const LinkNonces nonces = link.nonces();
  for (const uint64_t id : std::exchange(link.calls, {})) sendCall(id, nonces, *peer);
}

void ControlLoop::dialFor(Link& link) {
  const PendingCall* call = calls_.find(link.calls.front());
  if (!call) return nextCall(link);
  DialPlan plan;
  plan.self = parts_.self;
  plan.peer = link.process();
  plan.listener = call->handle.listener;
  plan.secret = call->handle.secret;
  plan.addresses = call->handle.addresses;
  plan.own = parts_.addresses;
  fillScopes(plan.addresses, parts_.addresses);
  link.dial(std::move(plan));
}

// The front call is decided; the others still want to get there.
void ControlLoop::nextCall(Link& link) {
  link.calls.pop_front();
  if (!link.calls.empty()) return dialFor(link);
  link.abandon();
  removeLink(link);
}

void ControlLoop::linkRefused(Link& link, const Error& why) {
  calls_.fail(link.calls.front(), misfitOr(link.process(), why));
  nextCall(link);
}

void ControlLoop::linkUnreachable(Link& link, const Error& why) {
  for (const uint64_t id : link.calls) calls_.fail(id, misfitOr(link.process(), why));
  link.abandon();
  removeLink(link);
}

void ControlLoop::linkOpened(Link& link, Linked linked) {
  const std::string name = linked.info.host + format(" pid %u", linked.info.pid);
  if (const auto mismatch = compareFingerprints(parts_.options.fingerprint, linked.info.fingerprint, name)) {
    noteMisfit(link.process(), *mismatch);
    return linkRefused(link, *mismatch);
  }
  const PendingCall* first = calls_.find(link.calls.front());
  establish(link, {makePeer(link.process(), linked.info, linked.socket.get()), linked.linkKey, linked.nonces,
                   joinAddresses(first ? first->handle.addresses : std::vector<SocketAddress>(),
                                 linked.info.addresses)});
  link.attach(std::move(linked.socket), linked.info);
  sendWaiting(link);
}

void ControlLoop::forgetCall(uint64_t id) {
  const PendingCall* call = calls_.find(id);
  if (!call) return;
  Link* link = call->sent ? nullptr : opening(call->handle.process);
  calls_.remove(id);
  if (!link) return;
  if (link->calls.front() == id) return nextCall(*link);
  std::erase(link->calls, id);
}

// NCCL hands out a rank's handles before it has those of all its peers, and accepts after it: one rank that
// comes late to the first collective holds up the others for as long. Whether the peer lives is watched by
// the link meanwhile.
bool ControlLoop::prolong(PendingCall& call) const {
  const Config& config = parts_.options.config;
  if (!call.sent || call.prolonged || config.acceptTimeout <= config.connectTimeout) return false;
  call.prolonged = true;
  call.deadline.after(config.acceptTimeout - config.connectTimeout);
  return true;
}

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

void ControlLoop::linkFrame(Link& link, FrameType type, std::span<const std::byte> body) {
  onFrame(link.peer(), link.nonces(), type, body);
}

void ControlLoop::linkMessage(Link& link, uint16_t type, std::span<const std::byte> body) {
  onMessage(link.peer(), type, body);
}

void ControlLoop::onMessage(const std::shared_ptr<PeerImpl>& from, uint16_t type,
                            std::span<const std::byte> body) {
  if (closing_ || !parts_.options.handler) return;
  parts_.options.handler->onMessage(from, type, body);
  wantTick();
}

void ControlLoop::onFrame(const std::shared_ptr<PeerImpl>& from, const LinkNonces& nonces, FrameType type,
                          std::span<const std::byte> body) {
  if (type == FrameType::call) {
    if (const auto call = decodeCall(body)) onCall(from, nonces, *call);
  } else if (type == FrameType::reply) {
    const auto reply = decodeReply(body);
    const PendingCall* call = reply ? calls_.find(reply->id) : nullptr;
    if (!call || call->handle.process != from->incarnation()) return;
    call->state->succeed(from, reply->body);
    calls_.remove(reply->id);
  } else if (type == FrameType::refuse) {
    const auto refusal = decodeRefuse(body);
    const PendingCall* call = refusal ? calls_.find(refusal->id) : nullptr;
    if (call && call->handle.process == from->incarnation()) calls_.fail(refusal->id, refusal->why);
  }
}

void ControlLoop::onCall(const std::shared_ptr<PeerImpl>& from, const LinkNonces& nonces,
                         const CallBody& call) {
  if (closing_) return;
  const auto refuseWith = [&](const char* why) {
    refuseCall(*from, call.id,
               Error(Code::remote, "connecting to " + placeName() + format(" pid %d", getpid()), why));
  };
  const auto listener = parts_.listeners->find(call.listener);
  if (!listener) return refuseWith("listener closed");
  if (!equalSecret(call.proof, callTag(listener->handle().secret, nonces, from->incarnation(), call))) {
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
  if (found == asked_.end()) return;  // the listener closed or the peer died meanwhile
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
  PeerFacts facts{parts_.self, name, parts_.options.fingerprint};
  selfLink_ = std::make_unique<SelfLink>(
      std::make_shared<PeerImpl>(parts_.mailbox, std::move(facts)),
      [this](const std::shared_ptr<PeerImpl>& from, uint16_t type, const Bytes& body) {
        if (type >= kFirstUserType) return onMessage(from, type, body);
        onFrame(from, LinkNonces{}, static_cast<FrameType>(type), body);
      });
  return selfLink_->peer();
}

}  // namespace weft::control
