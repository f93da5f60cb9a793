// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// VerbsEndpoint's slow half: connecting, fencing and closing. Nothing here runs while a lane carries data.
#include <cerrno>

#include "providers/verbs/endpoint.h"
#include "providers/verbs/words.h"
#include "src/base/log.h"

namespace weft::verbs {

namespace {

// A packet that was on the wire when the queue pair went to ERR may still land at the peer, whose queue pair
// knows nothing of it. No switch keeps one this long.
constexpr Milliseconds kStrayPackets{50};

}  // namespace

Status VerbsEndpoint::connect(std::span<const std::byte> peerAddress) {
  if (state_ != State::idle)
    return Error(Code::internal, "connecting a lane", "the lane was connected before");
  TRY(peer_, decodeLaneAddress(peerAddress));
  TRY(commonGid(pair_->address(), peer_));
  peerText_ = addressText(peer_);
  deadline_ = Clock::system().now() + queue_.settings().connectTimeout;
  TRY(queue_.device().dialer().dial({pair_, peer_, queue_.mailbox(), number_, deadline_}));
  state_ = State::connecting;
  queue_.tend(this);
  return {};
}

void VerbsEndpoint::dialled(int error, const std::string& why) {
  if (state_ != State::connecting) return;
  if (error != 0) return connectFailed(error, why);
  state_ = State::ready;
  everReady_ = true;
  queue_.report(about(CompletionKind::connected));
}

void VerbsEndpoint::connectFailed(int error, const std::string& why) {
  state_ = State::dead;
  firstFailure_ = why;
  queue_.report(about(CompletionKind::connected, error), named("connecting to", why));
}

void VerbsEndpoint::broke(int error, const std::string& why) {
  if (state_ == State::connecting) return connectFailed(error, why);
  if (state_ == State::fencing) return startDraining();
  if (state_ != State::ready) return;
  state_ = State::dead;
  firstFailure_ = why;
  queue_.report(about(CompletionKind::broken, error), named("lane to", why));
}

// A lane that works is fenced by one more write behind everything else: when that is acknowledged, all before
// it has landed. One that does not is cut.
void VerbsEndpoint::retire() {
  if (state_ == State::fencing || state_ == State::draining || state_ == State::retired) return;
  if (state_ == State::connecting) connectFailed(ECANCELED, "the lane was retired while it connected");
  if (firstFailure_.empty()) firstFailure_ = "the lane was retired";
  deadline_ = Clock::system().now() + queue_.settings().closeTimeout;
  if (state_ == State::ready) {
    state_ = State::fencing;
    postMarker();
    if (!markerOut_) startDraining();
  } else {
    startDraining();
  }
  queue_.tend(this);
}

// A write of nothing needs no memory at either end.
void VerbsEndpoint::postMarker() {
  Work nothing;
  ibv_send_wr request{};
  ibv_sge piece{};
  fill(nothing, &request, &piece);
  request.wr_id = number_ << 32 | posted_;
  request.next = nullptr;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(pair_->get(), &request, &refused) != 0) return;
  slot(posted_++) = {0, Purpose::marker};
  markerOut_ = true;
}

void VerbsEndpoint::markerBack(bool acknowledged) {
  markerOut_ = false;
  if (state_ != State::fencing) return;
  startDraining();
  if (acknowledged) strayUntil_ = {};
}

void VerbsEndpoint::startDraining() {
  const TimePoint now = Clock::system().now();
  state_ = State::draining;
  deadline_ = now + queue_.settings().closeTimeout;
  strayUntil_ = everReady_ ? now + kStrayPackets : TimePoint{};
  pair_->fail();
}

bool VerbsEndpoint::tend(TimePoint now) {
  switch (state_) {
    case State::connecting:
      if (now < deadline_) return true;
      connectFailed(ETIMEDOUT, "no connection within WEFT_CONNECT_TIMEOUT");
      return false;
    case State::fencing:
      if (now >= deadline_) startDraining();
      return true;
    case State::draining:
      return tendDraining(now);
    default:
      return false;
  }
}

// Works that succeeded without an entry of their own are silent in ERR too, so a marker is sent behind them:
// it comes back flushed. A card that does not even do that is done with when the queue pair is destroyed.
bool VerbsEndpoint::tendDraining(TimePoint now) {
  if (outstanding() > 0 && !markerOut_) postMarker();
  if (outstanding() > 0 && now < deadline_) return true;
  if (now < strayUntil_) return true;
  if (outstanding() > 0) condemnOutstanding();
  reportRetired();
  return false;
}

void VerbsEndpoint::condemnOutstanding() {
  for (; unfolded_ != posted_; unfolded_++) {
    const Posted& work = slot(unfolded_);
    if (work.purpose == Purpose::marker) continue;
    queue_.give(1);
    Completion completion = about(CompletionKind::sent, ECANCELED);
    completion.context = work.context;
    queue_.report(completion, named("writing to or reading from", firstFailure_));
  }
  judged_ = unfolded_;
}

void VerbsEndpoint::reportRetired() {
  state_ = State::retired;
  queue_.report(about(CompletionKind::retired));
}

}  // namespace weft::verbs
