// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// OfiEndpoint's slow half: connecting, fencing and closing. Nothing here runs while a lane carries data.
#include "providers/ofi/descriptors.h"
#include "providers/ofi/endpoint.h"
#include "providers/ofi/rma_message.h"
#include "src/base/log.h"

namespace weft::ofi {

bool OfiEndpoint::tend(TimePoint now, bool drained) {
  switch (state_) {
    case State::connecting:
      return tendConnecting(now);
    case State::retiring:
      return tendRetiring(now);
    case State::closing:
      return tendClosing(drained);
    default:
      return false;
  }
}

int64_t OfiEndpoint::ring() {
  Operation* operation = queue_.operations().take();
  if (!operation) return -FI_EAGAIN;
  operation->lane = this;
  operation->context = 0;
  operation->purpose = Purpose::doorstep;
  RmaMessage message(doorstepSource(), doorstepTarget(), queue_.device().doorstep().descriptor());
  const ssize_t code = fi_writemsg(fabric_, message.to(peerAddress_, operation), deliveredFlag());
  if (code != 0) {
    queue_.operations().give(operation);
    return code;
  }
  ringing_ = true;
  outstanding_++;
  return 0;
}

// Trying to post is what makes a provider connect; -FI_EAGAIN says that it is not done. A peer that is not
// there looks the same, so only the deadline ends this.
bool OfiEndpoint::tendConnecting(TimePoint now) {
  if (now >= deadline_) {
    connectFailed(FI_ETIMEDOUT, "no answer within WEFT_CONNECT_TIMEOUT");
    return false;
  }
  if (ringing_ || !known_) return true;
  const int64_t code = ring();
  if (code == 0 || code == -FI_EAGAIN) return true;
  connectFailed(static_cast<int>(-code), queue_.device().library()->errorText(code));
  return false;
}

void OfiEndpoint::connectFailed(int error, const std::string& why) {
  state_ = State::dead;
  lost_ = true;
  queue_.report(about(CompletionKind::connected, error), named("connecting to", why));
}

namespace {

// Both ends dial at once, and net drops one of the two connections, sometimes under the first write. The lane
// rings again; a peer that is really gone is the deadline's business, and the control link's.
bool worthRingingAgain(int error) {
  return error == FI_ENOTCONN || error == FI_ECANCELED || error == FI_ECONNREFUSED ||
         error == FI_ECONNRESET || error == FI_ECONNABORTED;
}

}  // namespace

void OfiEndpoint::doorstepFinished(int error, const std::string& why) {
  ringing_ = false;
  if (state_ == State::retiring) {
    fenced_ = true;  // acknowledged, or the connection ended
  } else if (state_ == State::connecting && error != 0) {
    if (!worthRingingAgain(error)) connectFailed(error, why);
  } else if (state_ == State::connecting) {
    state_ = State::ready;
    if (own_) closeConnectionsOnExec(ownName_, peer_.name);
    queue_.report(about(CompletionKind::connected));
  }
}

void OfiEndpoint::retire() {
  if (state_ == State::retiring || state_ == State::closing || state_ == State::retired) return;
  if (state_ == State::connecting) connectFailed(FI_ECANCELED, "the lane was retired while it connected");
  fenced_ = state_ == State::idle || lost_ || queue_.device().traits().delivery == Delivery::always;
  state_ = State::retiring;
  deadline_ = Clock::system().now() + queue_.device().config().closeTimeout;
  queue_.tend(this);
}

// Closing a socket does not take back what is already in it, so a healthy lane is fenced by one more write
// behind everything else: when it is acknowledged, all before it has landed. A peer that does not poll cannot
// acknowledge; then the lane is cut at the deadline, and `retired` says that it is not ok. Lanes that share
// an endpoint are cut together.
bool OfiEndpoint::tendRetiring(TimePoint now) {
  if (!everythingLanded() && now < deadline_) return true;
  if (!everythingLanded() && !own_ && queue_.sharedEndpoint()) {
    queue_.cutEndpoint("a lane on the same card had to be cut");
  } else if (outstanding_ > 0 && !queue_.device().traits().closesCleanly) {
    fenced_ = false;
    failOutstanding();
    reportRetired(FI_EBUSY);
    return false;
  }
  closeFabric();
  state_ = State::closing;
  return true;
}

bool OfiEndpoint::everythingLanded() {
  if (!fenced_ && !ringing_) {
    const int64_t code = ring();
    const bool gone = code == -FI_EAGAIN && outstanding_ == 0 && queue_.device().traits().connections;
    fenced_ = gone || (code != 0 && code != -FI_EAGAIN);
  }
  return fenced_ && outstanding_ == 0;
}

void OfiEndpoint::endpointGone(const std::string& why) {
  broke(why);  // first: the reason of all that follows
  failOutstanding();
  fabric_ = nullptr;
  inBook_ = ringing_ = false;
  fenced_ = true;
}

// A closed endpoint's operations are all in the completion queue, as cancelled; when that was read to its end
// and some are still missing, they will not come.
bool OfiEndpoint::tendClosing(bool drained) {
  if (outstanding_ > 0 && !drained) return true;
  failOutstanding();
  reportRetired(fenced_ ? 0 : FI_ETIMEDOUT);
  return false;
}

void OfiEndpoint::closeFabric() {
  own_.reset();
  fabric_ = nullptr;
}

// Reports what libfabric will not report any more. The operations stay out of the pool, in case it does.
void OfiEndpoint::failOutstanding() {
  queue_.abandon(this, [this](const Operation& operation) {
    if (operation.purpose == Purpose::doorstep) return;
    Completion completion = about(CompletionKind::sent, FI_ECANCELED);
    completion.context = operation.context;
    queue_.report(completion, named("writing to or reading from", "the lane was retired"));
  });
  outstanding_ = 0;
}

void OfiEndpoint::reportRetired(int error) {
  state_ = State::retired;
  queue_.report(
      about(CompletionKind::retired, error),
      named("retiring the lane to",
            "the peer did not acknowledge; what is in its socket may land until it closes its end"));
}

}  // namespace weft::ofi
