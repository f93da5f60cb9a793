// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// OfiEndpoint's slow half: connecting, fencing and closing. Nothing here runs while a lane carries data.
#include <algorithm>

#include "providers/ofi/descriptors.h"
#include "providers/ofi/endpoint.h"
#include "providers/ofi/rma_message.h"
#include "src/base/log.h"

namespace weft::ofi {

namespace {
constexpr const char* kCut = "a lane on the same card had to be cut";
constexpr int64_t kNoneFree = 1;  // later: all operations are in flight, which says nothing of the stream
}  // namespace

bool OfiEndpoint::progress(TimePoint now, bool drained) {
  switch (state_) {
    case State::connecting:
      return progressConnecting(now);
    case State::retiring:
      return progressRetiring(now);
    case State::closing:
      return progressClosing(drained);
    default:
      return false;
  }
}

int64_t OfiEndpoint::sendHello(Stream* stream) {
  Operation* operation = queue_.operations().take();
  if (!operation) return kNoneFree;
  operation->lane = this;
  operation->stream = stream;
  operation->context = 0;
  operation->purpose = Purpose::hello;
  RmaMessage message(helloSource(), helloTarget(), queue_.device().helloMemory().descriptor());
  const bool tells = queue_.device().traits().oneDials;
  const ssize_t code = fi_writemsg(stream->endpoint, message.to(stream->to, operation, tells ? kRing : 0),
                                   deliveredFlag() | (tells ? FI_REMOTE_CQ_DATA : 0));
  if (code != 0) {
    queue_.operations().give(operation);
    return code;
  }
  stream->helloInFlight = true;
  stream->outstanding++;
  return 0;
}

// Trying to post is what makes a provider connect; -FI_EAGAIN says that it is not done. A peer that is not
// there looks the same, so only the deadline ends this.
bool OfiEndpoint::progressConnecting(TimePoint now) {
  if (now >= deadline_) {
    connectFailed(FI_ETIMEDOUT, "no answer within WEFT_CONNECT_TIMEOUT");
    return false;
  }
  for (Stream& stream : streams()) {
    if (stream.stands || stream.helloInFlight || !known_) continue;
    if (!stream.mayDial && now < dialAnyway_) continue;
    const int64_t code = sendHello(&stream);
    if (code >= 0 || code == -FI_EAGAIN) continue;
    connectFailed(static_cast<int>(-code), queue_.device().library()->errorText(code));
    return false;
  }
  return true;
}

void OfiEndpoint::connectFailed(int error, const std::string& why) {
  state_ = State::dead;
  for (Stream& stream : streams()) stream.fenced = true;  // it never carried anything
  queue_.report(about(CompletionKind::connected, error), named("connecting to", why));
}

namespace {

// Where both ends dial at once one of the two connections is dropped, sometimes under the first write. The
// lane rings again; a peer that is really gone is the deadline's business, and the control link's.
bool worthRingingAgain(int error) {
  return error == FI_ENOTCONN || error == FI_ECANCELED || error == FI_ECONNREFUSED ||
         error == FI_ECONNRESET || error == FI_ECONNABORTED;
}

}  // namespace

void OfiEndpoint::helloFinished(Stream* stream, int error, const std::string& why) {
  stream->helloInFlight = false;
  if (state_ == State::retiring) {
    stream->fenced = true;  // acknowledged, or the connection ended
  } else if (state_ == State::connecting && error != 0) {
    if (!worthRingingAgain(error)) connectFailed(error, why);
  } else if (state_ == State::connecting) {
    stream->stands = true;
    stream->fenced = false;  // an attempt before this one may have been lost
    const auto stands = [](const Stream& each) { return each.stands; };
    if (std::all_of(streams().begin(), streams().end(), stands)) connected();
  }
}

void OfiEndpoint::helloCame(fi_addr_t by) {
  for (Stream& stream : streams())
    if (stream.to == by) stream.mayDial = true;
}

void OfiEndpoint::connected() {
  state_ = State::ready;
  if (software()) closeConnectionsOnExec(mine_.names, peer_.names);
  queue_.report(about(CompletionKind::connected));
}

void OfiEndpoint::retire() {
  if (state_ == State::retiring || state_ == State::closing || state_ == State::retired) return;
  if (state_ == State::connecting) connectFailed(FI_ECANCELED, "the lane was retired while it connected");
  const bool nothing = state_ == State::idle || queue_.device().traits().delivery == Delivery::always;
  for (Stream& stream : streams()) stream.fenced |= nothing;
  state_ = State::retiring;
  deadline_ = Clock::system().now() + queue_.device().config().closeTimeout;
  queue_.progress(this);
}

// Closing a socket does not take back what is already in it, so a healthy lane is fenced by one more write
// behind everything else: when it is acknowledged, all before it has landed. A peer that does not poll cannot
// acknowledge; then the lane is cut at the deadline, and `retired` says that it is not ok. Lanes that share
// an endpoint can only be cut together: while others are wanted there, that is for the protocol to say.
bool OfiEndpoint::progressRetiring(TimePoint now) {
  if (queue_.endpointClosing()) return true;
  const bool landed = everythingLanded();
  if (!landed && now < deadline_) return true;
  if (!landed && !software() && queue_.sharedEndpoint()) {
    if (queue_.wantedLanes() > 0) {
      queue_.holdMemory();
      return stayBusy();
    }
    queue_.cutEndpoint(kCut);
    return true;
  }
  if (outstanding() > 0 && !queue_.device().traits().closesCleanly) return stayBusy();
  closeFabric();
  state_ = State::closing;
  return true;
}

bool OfiEndpoint::stayBusy() {
  onItsWay_ = true;
  failOutstanding();
  reportRetired(FI_EBUSY);
  return false;
}

// Another lane that could not be fenced either may have asked for it before.
bool OfiEndpoint::cut() {
  if (state_ != State::retired || software()) return false;
  if (onItsWay_ && !queue_.endpointClosing()) queue_.cutEndpoint(kCut);
  state_ = State::closing;
  queue_.progress(this);
  return true;
}

bool OfiEndpoint::landed(Stream* stream) {
  if (!stream->fenced && !stream->helloInFlight) {
    const int64_t code = sendHello(stream);
    const bool gone = code == -FI_EAGAIN && stream->outstanding == 0 && queue_.device().traits().connections;
    stream->fenced = gone || (code < 0 && code != -FI_EAGAIN);
  }
  return stream->fenced && stream->outstanding == 0;
}

bool OfiEndpoint::everythingLanded() {
  size_t count = 0;  // all are asked, so that their doorbells are on their way together
  for (Stream& stream : streams()) count += landed(&stream);
  return count == count_;
}

bool OfiEndpoint::fenced() const {
  const auto own = std::span(streams_).first(count_);
  return std::all_of(own.begin(), own.end(), [](const Stream& stream) { return stream.fenced; });
}

size_t OfiEndpoint::outstanding() const {
  size_t sum = 0;
  for (const Stream& stream : streams_) sum += stream.outstanding;
  return sum;
}

void OfiEndpoint::endpointGoing(const std::string& why) {
  died(why);
  streams_[0].endpoint = nullptr;
}

void OfiEndpoint::endpointGone(const std::string& why) {
  broke(why);  // first: the reason of all that follows
  failOutstanding();
  streams_[0] = {};
  streams_[0].fenced = true;
  onItsWay_ = false;
}

// A closed endpoint's operations are all in the completion queue, as cancelled; when that was read to its end
// and some are still missing, they will not come.
bool OfiEndpoint::progressClosing(bool drained) {
  if (queue_.endpointClosing()) return true;
  if (outstanding() > 0 && !drained) return true;
  failOutstanding();
  reportRetired(fenced() ? 0 : FI_ETIMEDOUT);
  return false;
}

void OfiEndpoint::closeFabric() {
  if (streams_[0].own) queue_.turnStrangersAway(mine_.names);
  for (Stream& stream : streams_) {
    stream.own.reset();
    stream.endpoint = nullptr;
  }
}

// Reports what libfabric will not report any more. The operations stay out of the pool, in case it does.
void OfiEndpoint::failOutstanding() {
  queue_.abandon(this, [this](const Operation& operation) {
    if (operation.purpose == Purpose::hello) return;
    Completion completion = about(CompletionKind::sent, FI_ECANCELED);
    completion.context = operation.context;
    queue_.report(completion, named("writing to or reading from", "the lane was retired"));
  });
  for (Stream& stream : streams_) stream.outstanding = 0;
}

void OfiEndpoint::reportRetired(int error) {
  state_ = State::retired;
  queue_.report(
      about(CompletionKind::retired, error),
      named("retiring the lane to",
            "the peer did not acknowledge; what is in its socket may land until it closes its end"));
}

}  // namespace weft::ofi
