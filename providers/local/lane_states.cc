// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// LocalEndpoint's slow half: connecting, fencing and closing. Nothing here runs while a lane carries data.
#include <algorithm>
#include <cerrno>

#include "providers/local/endpoint.h"
#include "providers/local/wire.h"
#include "src/base/log.h"

namespace weft::local {

// Both ends look for each other's inbox, and each says in its own what came of it. Where one of them cannot
// be had the other end reads so, if it sees that much, and else finds nothing itself: there is no lane, and
// both know.
Status LocalEndpoint::connect(std::span<const std::byte> peerAddress) {
  if (state_ != State::idle)
    return Error(Code::internal, "connecting a lane", "the lane was connected before");
  TRY(there_, decodeAddress(peerAddress));
  state_ = State::connecting;
  deadline_ = Clock::system().now() + queue_.device().config().connectTimeout;
  queue_.attend(this);
  if (const Status found = findPeer(); !found)
    connectFailed(found.error().errnum() ? found.error().errnum() : ENOENT, found.error().message());
  else if (shares_)
    (void)progressConnecting(Clock::system().now());  // who connects second has all that it proves by
  return {};
}

Status LocalEndpoint::findPeer() {
  TRY(theirs_, SharedInbox::find(there_));
  if (!shares_ && !there_.gpuSocket.empty())
    return Error(Code::unavailable, "looking for a peer on this host",
                 "it shares GPU memory and we do not: WEFT_LOCAL_GPU or the GPUs differ");
  if (shares_) TRY(shares_->meet(there_.gpuSocket, here_.nonce, there_.nonce));
  mine_->owner.peer = there_.nonce;
  say(Word::willing);
  return {};
}

bool LocalEndpoint::progress(TimePoint now) {
  if (state_ == State::connecting) return progressConnecting(now);
  return state_ == State::retiring && progressRetiring(now);
}

bool LocalEndpoint::progressConnecting(TimePoint now) {
  const Word word = theirs_->owner.word.load(std::memory_order_acquire);
  if (word == Word::silent && now < deadline_ && theirs_.ownerLives()) return true;
  if (word == Word::silent) {
    const bool lives = theirs_.ownerLives();
    connectFailed(lives ? ETIMEDOUT : ECONNRESET,
                  lives ? "no answer within WEFT_CONNECT_TIMEOUT" : "the peer's process is gone");
  } else if (word != Word::willing && word != Word::proven) {
    connectFailed(ECONNREFUSED,
                  word == Word::left ? "the peer closed its end" : "the peer cannot see our memory");
  } else if (!equalSecret(theirs_->owner.peer, here_.nonce)) {
    connectFailed(ECONNREFUSED, "the peer connected to another lane");
  } else if (shares_ && !proveGpu()) {
    if (state_ == State::connecting && now < deadline_ && theirs_.ownerLives()) return true;
    if (state_ == State::connecting)
      connectFailed(ETIMEDOUT, "the peer does not prove that it reaches our GPU memory");
  } else {
    outbox_.attach(&*theirs_);
    state_ = State::ready;
    queue_.report(about(CompletionKind::connected));
  }
  return false;
}

// True: both ends have copied out of the other's GPU memory. A peer at its deadline may give up while we prove,
// so its word is read after ours was said.
bool LocalEndpoint::proveGpu() {
  if (!proven_) {
    if (const Status proof = shares_->prove(); !proof) {
      connectFailed(EIO, proof.error().message());
      return false;
    }
    proven_ = true;
    say(Word::proven);
  }
  const bool both = theirs_->owner.word.load(std::memory_order_seq_cst) == Word::proven;
  if (both) shares_->proven();
  return both;
}

void LocalEndpoint::connectFailed(int error, const std::string& why) {
  say(Word::declined);
  state_ = State::dead;
  queue_.report(about(CompletionKind::connected, error), named("connecting to", why));
}

// An end that stands has read that its peer is willing. The peer's deadline may have passed at that very moment:
// then it declined, and here the lane breaks.
void LocalEndpoint::checkPeer() {
  if (state_ != State::ready) return;
  const Word word = theirs_->owner.word.load(std::memory_order_acquire);
  if (word == Word::left && theirs_->owner.error.load(std::memory_order_relaxed) != 0)
    peerRefused();
  else if (word == Word::left)
    die(ECONNRESET, "the peer closed its end");
  else if (word == Word::declined)
    die(ECONNRESET, "the peer gave up connecting as this end was ready");
  else if (!theirs_.ownerLives())
    die(ECONNRESET, "the peer's process is gone");
}

void LocalEndpoint::die(int error, const std::string& why) {
  if (state_ != State::ready) return;
  state_ = State::dead;
  say(Word::left);
  if (failWorks(error, why) == 0) queue_.report(about(CompletionKind::broken, error), named("lane to", why));
}

// Nothing that is in the peer's inbox may land from now on, and nothing lands here. What the peer lands at
// this very moment is waited for.
void LocalEndpoint::retire() {
  if (state_ == State::retiring || state_ == State::retired) return;
  if (state_ == State::connecting) connectFailed(ECANCELED, "the lane was retired while it connected");
  if (theirs_) theirs_->peer.fence.store(1, std::memory_order_seq_cst);
  if (state_ == State::ready) tell();
  state_ = State::retiring;
  say(Word::left);
  deadline_ = Clock::system().now() + queue_.device().config().closeTimeout;
  queue_.attend(this);
}

bool LocalEndpoint::progressRetiring(TimePoint now) {
  const bool landing =
      theirs_ && theirs_->turn.landing.load(std::memory_order_seq_cst) != 0 && theirs_.ownerLives();
  if (landing && now < deadline_) return true;
  finishRetiring(!landing);
  return false;
}

void LocalEndpoint::finishRetiring(bool fenced) {
  if (!outbox_.empty()) outbox_.look();
  while (const auto sent = outbox_.takeConsumed()) {
    if (!sent->last) continue;
    queue_.workGone();
    Completion completion = about(CompletionKind::sent);
    completion.context = sent->context;
    if (!sent->silent) queue_.report(completion);
  }
  failWorks(ECANCELED, "the lane was retired");
  state_ = State::retired;
  if (fenced) return queue_.report(about(CompletionKind::retired));
  queue_.report(
      about(CompletionKind::retired, ETIMEDOUT),
      named("retiring the lane to", "the peer stopped while it landed a write, which it may go on with"));
}

}  // namespace weft::local
