// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// VerbsEndpoint's slow half: connecting, fencing and closing. Nothing here runs while a lane carries data.
#include <algorithm>
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

// Both ends use as many queue pairs as the one with fewer has.
Status VerbsEndpoint::connect(std::span<const std::byte> peerAddress) {
  if (state_ != State::idle)
    return Error(Code::internal, "connecting a lane", "the lane was connected before");
  TRY(const LaneAddress peer, decodeLaneAddress(peerAddress));
  TRY(commonGid(own_, peer));
  peerText_ = addressText(peer);
  sendQueues_.resize(std::min(sendQueues_.size(), peer.pairs.size()));
  deadline_ = Clock::system().now() + queue_.settings().connectTimeout;
  for (size_t i = 0; i < sendQueues_.size(); i++) {
    SendQueue& one = *sendQueues_[i];
    if (own_.takesApart && peer.takesApart) one.goApart(queue_.settings().apartAbove);
    TRY(one.dial(peer.only(i), deadline_));
  }
  dialling_ = sendQueues_.size();
  state_ = State::connecting;
  queue_.progress(this);
  return {};
}

void VerbsEndpoint::dialled(int error, const std::string& why) {
  if (state_ != State::connecting) return;
  if (error != 0) return connectFailed(error, why);
  if (--dialling_ > 0) return;
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
    bool all = true;
    for (auto& one : sendQueues_) {
      one->postMarker();
      all = all && one->markerOut();
    }
    if (!all) startDraining();
  } else {
    startDraining();
  }
  queue_.progress(this);
}

void VerbsEndpoint::markerBack(bool acknowledged) {
  if (state_ != State::fencing) return;
  const bool more =
      std::any_of(sendQueues_.begin(), sendQueues_.end(), [](const auto& one) { return one->markerOut(); });
  if (acknowledged && more) return;
  startDraining();
  if (acknowledged) strayUntil_ = {};
}

void VerbsEndpoint::startDraining() {
  const TimePoint now = Clock::system().now();
  state_ = State::draining;
  deadline_ = now + queue_.settings().closeTimeout;
  strayUntil_ = everReady_ ? now + kStrayPackets : TimePoint{};
  for (auto& one : sendQueues_) one->pair()->fail();
}

size_t VerbsEndpoint::outstanding() const {
  size_t sum = 0;
  for (const auto& one : sendQueues_) sum += one->outstanding();
  return sum;
}

bool VerbsEndpoint::progress(TimePoint now) {
  switch (state_) {
    case State::connecting:
      if (now < deadline_) return true;
      connectFailed(ETIMEDOUT, "no connection within WEFT_CONNECT_TIMEOUT");
      return false;
    case State::fencing:
      if (now >= deadline_) startDraining();
      return true;
    case State::draining:
      return progressDraining(now);
    default:
      return false;
  }
}

// Works that succeeded without an entry of their own are silent in ERR too, so a marker is sent behind them:
// it comes back flushed. A card that does not even do that is done with when the queue pair is destroyed.
bool VerbsEndpoint::progressDraining(TimePoint now) {
  for (auto& one : sendQueues_)
    if (one->outstanding() > 0 && !one->markerOut()) one->postMarker();
  if (outstanding() > 0 && now < deadline_) return true;
  if (now < strayUntil_) return true;
  for (auto& one : sendQueues_) one->condemnOutstanding();
  reportRetired();
  return false;
}

void VerbsEndpoint::reportRetired() {
  state_ = State::retired;
  queue_.report(about(CompletionKind::retired));
}

}  // namespace weft::verbs
