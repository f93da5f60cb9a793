// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// How the connections of a lane are dialled, and whom a lane lets in.
#include <algorithm>
#include <cerrno>

#include "providers/tcp/endpoint.h"

namespace weft::tcp {

namespace {

using Verdict = Doorman::Verdict;

}  // namespace

Status TcpEndpoint::dialOne(uint8_t number) {
  const SocketAddress& from = queue_.device().address();
  TRY(auto fd, startConnecting(peer_.socket(from.scope()), {true, queue_.depths().trafficClass}, &from));
  Stream& stream = addStream(std::move(fd));
  stream.lanesNumber = number;
  stream.awaitDoor();
  return {};
}

Greeting TcpEndpoint::greetingBy(bool weDial, const Nonce& door, const Hello& hello) const {
  return {door, hello, weDial ? peerAddress_ : address_, weDial ? address_ : peerAddress_};
}

Key256 TcpEndpoint::keyOfGreeting(bool weDial) const {
  return greetingKey(queue_.device().protection(), weDial ? peer_.secret : mine_.secret,
                     weDial ? mine_.secret : peer_.secret);
}

// False: this host cannot encrypt, which ends the stream.
bool TcpEndpoint::sealStream(Stream& stream, const Greeting& greeting, bool weDial) {
  auto channel = SealedChannel::create(channelKeys(keyOfGreeting(weDial), greeting, weDial));
  if (channel) {
    stream.sealBy(channel.take());
    return true;
  }
  streamFailed(stream, ENOTSUP, channel.error().message());
  return false;
}

bool TcpEndpoint::doorSaid(Stream& stream, const Nonce& nonce) {
  Hello hello;
  hello.lane = peer_.lane;
  hello.stream = stream.lanesNumber;
  hello.nonce = freshNonce();
  const Greeting greeting = greetingBy(true, nonce, hello);
  hello.claim = greetingTag(TagOf::claim, claimKey(queue_.device().protection(), peer_.secret), greeting);
  hello.proof = greetingTag(TagOf::hello, keyOfGreeting(true), greeting);
  if (mine_.sealed && !sealStream(stream, {nonce, hello, {}, {}}, true)) return false;
  stream.pushHello(hello);
  send(stream);
  return stream.open();
}

// A greeting that comes before we were told of our peer has to wait, if its sender was given our address. One
// of anybody but that peer is turned away.
Verdict TcpEndpoint::judge(Caller& caller) const {
  const Protection& protection = queue_.device().protection();
  if (!caller.isGivenIt) {
    const Greeting greeting{caller.door, caller.hello, address_, {}};
    const Tag128 claim = greetingTag(TagOf::claim, claimKey(protection, mine_.secret), greeting);
    if (!equalSecret(caller.hello.claim, claim)) return Verdict::turnAway;
    caller.isGivenIt = true;
  }
  if (life_.state() == LaneState::idle) return Verdict::wait;
  const Verdict verdict = judgePlace(caller);
  if (verdict != Verdict::takeIn) return verdict;
  const Greeting greeting = greetingBy(false, caller.door, caller.hello);
  const bool isPeer =
      equalSecret(caller.hello.proof, greetingTag(TagOf::hello, keyOfGreeting(false), greeting));
  return isPeer ? Verdict::takeIn : Verdict::turnAway;
}

// Whether there is a place for that stream: each number once, and all from where the first one came.
Verdict TcpEndpoint::judgePlace(const Caller& caller) const {
  const bool first = caller.hello.stream == 0;
  if (welcome_[caller.hello.stream]) return Verdict::turnAway;
  if (life_.state() == LaneState::connecting) {
    if (!first) return Verdict::wait;
    return dials_ == toSelf_ && streams_.size() == (toSelf_ ? 1 : 0) ? Verdict::takeIn : Verdict::turnAway;
  }
  const bool sameHost = std::ranges::equal(caller.from.ip(), cameFrom_.ip());
  const bool another = life_.ready() && !first && !dials_ && sameHost && streams_.size() < mostStreams();
  return another ? Verdict::takeIn : Verdict::turnAway;
}

void TcpEndpoint::greeted(const Caller& caller, Fd fd) {
  const Hello& hello = caller.hello;
  setTrafficClass(fd.get(), mine_.v6 ? AF_INET6 : AF_INET, queue_.depths().trafficClass);
  welcome_[hello.stream] = true;
  if (hello.stream == 0) cameFrom_ = caller.from;
  Stream& stream = addStream(std::move(fd));
  stream.lanesNumber = hello.stream;
  stream.standing = true;
  const Greeting greeting = greetingBy(false, caller.door, hello);
  if (mine_.sealed && !sealStream(stream, greeting, false)) return;
  stream.pushWelcome(greetingTag(TagOf::welcome, keyOfGreeting(false), greeting));
  send(stream);
  if (hello.stream > 0)
    bulk_.push_back(&stream);
  else if (!toSelf_)
    connected();
}

bool TcpEndpoint::welcomed(Stream& stream, const FrameHeader& header) {
  if (!dials_ || stream.standing) {
    streamFailed(stream, EPROTO, "it welcomed us where nobody had dialled");
    return false;
  }
  const Greeting greeting = greetingBy(true, stream.door, stream.hello);
  if (!equalSecret(tagIn(header), greetingTag(TagOf::welcome, keyOfGreeting(true), greeting))) {
    streamFailed(stream, EPROTO, "who answers at its port does not prove to be it");
    return false;
  }
  stream.standing = true;
  if (life_.state() == LaneState::connecting)
    connected();
  else
    bulk_.push_back(&stream);
  return true;
}

}  // namespace weft::tcp
