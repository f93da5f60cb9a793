// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// TcpEndpoint's slow half: connecting, fencing and closing. Nothing here runs while a lane carries data.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "providers/tcp/endpoint.h"
#include "src/base/log.h"

namespace weft::tcp {

using Verdict = Doorman::Verdict;

Status TcpEndpoint::connect(std::span<const std::byte> peerAddress) {
  if (state_ != State::idle)
    return Error(Code::internal, "connecting a lane", "the lane was connected before");
  TRY(peer_, decodeLaneAddress(peerAddress));
  peerText_ = peer_.socket().text();
  const std::span<const std::byte> mine(address_);
  toSelf_ = std::equal(mine.begin(), mine.end(), peerAddress.begin(), peerAddress.end());
  dials_ = toSelf_ ||
           std::lexicographical_compare(mine.begin(), mine.end(), peerAddress.begin(), peerAddress.end());
  state_ = State::connecting;
  deadline_ = Clock::system().now() + queue_.device().config().connectTimeout;
  queue_.progress(this);
  if (peer_.v6 != mine_.v6) {
    connectFailed(EAFNOSUPPORT,
                  "one end has an IPv4 address only and the other one IPv6; choose interfaces "
                  "that have the same on all hosts (WEFT_SOCKET_IFNAME)");
  } else if (dials_) {
    const Status dialled = dialOne(0);
    if (!dialled) connectFailed(dialled.error().errnum(), dialled.error().message());
  }
  return {};
}

bool TcpEndpoint::progress(TimePoint now) {
  switch (state_) {
    case State::connecting:
      return progressConnecting(now);
    case State::retiring:
      return progressRetiring(now);
    case State::ready:
      return now < expecting_ && streams_.size() < streamsWanted();
    default:
      return false;
  }
}

bool TcpEndpoint::progressConnecting(TimePoint now) {
  if (now < deadline_) return true;
  connectFailed(ETIMEDOUT, "no answer within WEFT_CONNECT_TIMEOUT");
  return false;
}

Status TcpEndpoint::dialOne(uint8_t number) {
  const SocketAddress& from = queue_.device().address();
  TRY(auto fd, startConnecting(peer_.socket(from.scope()), {true, queue_.depths().trafficClass}, &from));
  Hello hello;
  hello.lane = peer_.lane;
  hello.secret = peer_.secret;
  hello.from = mine_.secret;
  hello.stream = number;
  hellos_[number] = encode(hello);
  Stream& stream = addStream(std::move(fd));
  stream.pushHello(&hellos_[number]);
  send(stream);
  return {};
}

Stream& TcpEndpoint::addStream(Fd fd) {
  if (mine_.ip == peer_.ip) keepShort(fd.get());
  streams_.push_back(std::make_unique<Stream>(static_cast<StreamHost&>(*this), std::move(fd)));
  queue_.read(streams_.back().get());
  return *streams_.back();
}

// Who greets before we were told of our peer has to wait; anybody else than that peer is turned away.
Verdict TcpEndpoint::judge(const Hello& hello) const {
  if (!equalSecret(hello.secret, mine_.secret)) return Verdict::turnAway;
  if (state_ == State::idle) return Verdict::wait;
  if (!equalSecret(hello.from, peer_.secret)) return Verdict::turnAway;
  const bool first = hello.stream == 0;
  if (state_ == State::connecting) {
    if (!first) return Verdict::wait;
    return dials_ == toSelf_ && streams_.size() == (toSelf_ ? 1 : 0) ? Verdict::takeIn : Verdict::turnAway;
  }
  const bool another = state_ == State::ready && !first && !dials_ && streams_.size() < streamsWanted();
  return another ? Verdict::takeIn : Verdict::turnAway;
}

void TcpEndpoint::greeted(const Hello& hello, Fd fd) {
  setTrafficClass(fd.get(), mine_.v6 ? AF_INET6 : AF_INET, queue_.depths().trafficClass);
  Stream& stream = addStream(std::move(fd));
  stream.standing = true;
  stream.pushControl(FrameKind::welcome);
  send(stream);
  if (hello.stream > 0)
    bulk_.push_back(&stream);
  else if (!toSelf_)
    connected();
}

bool TcpEndpoint::welcomed(Stream& stream) {
  if (!dials_ || stream.standing) {
    streamFailed(stream, EPROTO, "it welcomed us where nobody had dialled");
    return false;
  }
  stream.standing = true;
  if (state_ == State::connecting)
    connected();
  else
    bulk_.push_back(&stream);
  return true;
}

void TcpEndpoint::connected() {
  state_ = State::ready;
  fenced_ = false;
  queue_.report(about(CompletionKind::connected));
}

void TcpEndpoint::connectFailed(int error, const std::string& why) {
  closeStreams();
  state_ = State::dead;
  queue_.reportAfter(about(CompletionKind::connected, error), named("connecting to", why));
}

// Of two ends the one with fewer streams decides.
size_t TcpEndpoint::streamsWanted() const {
  if (toSelf_) return 1;
  return std::min<size_t>({mine_.streams, peer_.streams, kMostStreams});
}

// Who dialled the first one dials the others too, so that the ends agree on what there is.
void TcpEndpoint::wantStreams() {
  asked_ = true;
  if (streamsWanted() < 2) return;
  if (dials_) return dialStreams();
  expecting_ = Clock::system().now() + queue_.device().config().connectTimeout;
  queue_.progress(this);
  streams_.front()->pushControl(FrameKind::streams);
}

// One that cannot be had is done without.
void TcpEndpoint::dialStreams() {
  Stream& first = *streams_.front();
  first.pushControl(FrameKind::streams);
  send(first);
  for (uint8_t i = 1; i < streamsWanted(); i++) {
    const Status dialled = dialOne(i);
    if (!dialled)
      WEFT_LOG(info, "%s", named("opening another connection to", dialled.error().message()).c_str());
  }
}

bool TcpEndpoint::control(Stream& stream, const FrameHeader& header) {
  switch (header.kind) {
    case FrameKind::welcome:
      return welcomed(stream);
    case FrameKind::streams:
      return streamsAnnounced();
    case FrameKind::bye:
      stream.peerLeft = true;
      stream.pushControl(FrameKind::byeAnswer);
      stream.flush();
      return stream.open();
    case FrameKind::byeAnswer:
      stream.fenced = state_ == State::retiring;
      return true;
    default:
      streamFailed(stream, EACCES, refusalText(header.number));
      return false;
  }
}

bool TcpEndpoint::streamsAnnounced() {
  if (state_ != State::ready) return true;
  const bool dial = dials_ && !asked_;
  asked_ = true;
  if (dial && streamsWanted() > 1) dialStreams();
  if (dials_) return true;
  expecting_ = Clock::system().now() + queue_.device().config().connectTimeout;
  queue_.progress(this);
  return true;
}

std::string TcpEndpoint::refusalText(uint32_t reason) {
  switch (static_cast<Refused>(reason)) {
    case Refused::memory:
      return "the peer refused a write or read: the memory is not registered there (any more)";
    case Refused::range:
      return "the peer refused a write or read: it leaves the memory that it names";
    default:
      return "the peer refused what it received; both ends need the same version of weft";
  }
}

// The connection ended, or has to. One that was to become another one of a lane takes nothing along.
void TcpEndpoint::streamFailed(Stream& stream, int error, const std::string& why) {
  if (state_ == State::connecting) return connectFailed(error, why);
  if (state_ == State::ready && stream.standing) return die(error, why);
  if (state_ == State::retiring) {
    fenced_ &= stream.fenced || stream.peerLeft;
    stream.dropAll([&](Purpose purpose, uint64_t context) {
      if (purpose <= Purpose::unsignaled) failWork(context, error, why);
    });
  }
  closeStream(stream);
}

void TcpEndpoint::die(int error, const std::string& why) {
  // One that has ended says nothing of what is still in the peer's other sockets.
  const auto over = [](const auto& each) { return each->fenced || each->peerLeft || !each->standing; };
  fenced_ = std::all_of(streams_.begin(), streams_.end(), over);
  const bool nobodyToBlame = failWorks(error, why) == 0;
  closeStreams();
  state_ = State::dead;
  if (nobodyToBlame) queue_.reportAfter(about(CompletionKind::broken, error), named("lane to", why));
}

void TcpEndpoint::closeStream(Stream& stream) {
  queue_.forget(&stream);
  stream.close();
}

void TcpEndpoint::closeStreams() {
  for (const auto& stream : streams_)
    if (stream->open()) closeStream(*stream);
}

void TcpEndpoint::retire() {
  if (state_ == State::retiring || state_ == State::retired) return;
  if (state_ == State::connecting) connectFailed(ECANCELED, "the lane was retired while it connected");
  if (state_ == State::ready) sayGoodbye();
  state_ = State::retiring;
  deadline_ = Clock::system().now() + queue_.device().config().closeTimeout;
  queue_.progress(this);
}

// Closing a socket does not take back what is in it. So what has not left stays here, and a goodbye goes
// behind the rest: when it is answered, all that came before it has landed.
void TcpEndpoint::sayGoodbye() {
  fenced_ = true;
  for (const auto& stream : streams_) {
    stream->dropUnsent([&](Purpose purpose, uint64_t context) {
      const char* why = "the lane was retired before";
      if (purpose == Purpose::request)
        failRead(context, ECANCELED, why);
      else
        failWork(context, ECANCELED, why);
    });
    if (!stream->open()) continue;
    if (!stream->standing) {
      closeStream(*stream);
      continue;
    }
    stream->pushControl(FrameKind::bye);
    send(*stream);
  }
}

bool TcpEndpoint::progressRetiring(TimePoint now) {
  const auto ended = [](const auto& stream) { return stream->fenced || !stream->open(); };
  const bool over = std::all_of(streams_.begin(), streams_.end(), ended);
  if (!over && now < deadline_) return true;
  finishRetiring(over && fenced_);
  return false;
}

// A peer that does not poll answers nothing. Then the connections are cut, and what is in the peer's sockets
// can land until it closes them.
void TcpEndpoint::finishRetiring(bool fenced) {
  failWorks(ECANCELED, "the lane was retired");
  for (const auto& stream : streams_) {
    if (!stream->open()) continue;
    queue_.forget(stream.get());
    if (fenced)
      stream->close();
    else
      stream->cut();
  }
  state_ = State::retired;
  if (fenced) return queue_.reportAfter(about(CompletionKind::retired), {});
  queue_.reportAfter(about(CompletionKind::retired, ETIMEDOUT),
                     named("retiring the lane to",
                           "the peer did not acknowledge; what is in its socket may land until it closes its "
                           "end"));
}

}  // namespace weft::tcp
