// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/dial.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>

#include "src/base/log.h"
#include "src/control/addresses.h"

// Rounds over a peer's addresses, and the dialling side of the handshake.
namespace weft::control {

namespace {

// Bounds of the pause between rounds, and of a connect; both double every round.
constexpr Milliseconds kLongestPause{500};
constexpr Milliseconds kLongestConnect{3000};

// Errors of connect(2) that say something about this host's ways, and nothing about the peer.
bool isUnreachable(int error) {
  return error == ENETUNREACH || error == EHOSTUNREACH || error == EAFNOSUPPORT || error == EADDRNOTAVAIL ||
         error == EINVAL;
}

bool hasOther(const std::vector<SocketAddress>& addresses, const std::vector<SocketAddress>& own) {
  return !std::all_of(addresses.begin(), addresses.end(),
                      [&](const SocketAddress& address) { return isAmong(address, own); });
}

std::string errorText(int errnum) {
  return Error(Code::system, "", "", errnum).message();
}

}  // namespace

Dial::Dial(EventLoop& loop, Self& self, DialPlan plan, Report report)
    : loop_(loop),
      self_(self),
      plan_(std::move(plan)),
      report_(std::move(report)),
      elsewhere_(hasOther(plan_.addresses, self.addresses())),
      watch_(loop, [this](uint32_t) { onEvent(); }),
      deadline_(loop, [this] { onDeadline(); }),
      patience_(plan_.connectPatience) {}

Dial::~Dial() {
  hangUp();
}

// Begins at the next turn of the loop, as the first report must not come before the caller has stored this
// object.
void Dial::start() {
  deadline_.at(loop_.now());
}

void Dial::onDeadline() {
  switch (state_) {
    case State::waiting:
      return tryAddress();
    case State::connecting:
      return addressFailed(Verdict::retry, "no answer");
    case State::answer:
    case State::proof:
    case State::infoLength:
    case State::infoBody:
      return addressFailed(Verdict::retry, "connected, but the process does not answer");
  }
}

void Dial::tryAddress() {
  const SocketAddress& address = plan_.addresses[index_];
  auto started = startConnecting(address);
  if (!started) return connectFailed(started.error().errnum());
  socket_ = started.take();
  state_ = State::connecting;
  deadline_.after(patience_);
  if (!watch_.start(socket_.get(), EPOLLOUT)) addressFailed(Verdict::retry, "out of resources");
}

void Dial::connectFailed(int error) {
  if (error == ECONNREFUSED) return addressFailed(Verdict::nobody, "refused");
  addressFailed(isUnreachable(error) ? Verdict::unreachable : Verdict::retry, errorText(error));
}

// True: the address is also this host's own, and the peer has another one that is not. Every host may have
// such an address, as the bridge of containers does. A refusal there says nothing about the peer, unless all
// its addresses are on this host.
bool Dial::leadsBack() const {
  return elsewhere_ && isAmong(plan_.addresses[index_], self_.addresses());
}

// Unreachable is no verdict on the process: this host has no way to that address now, for example to an IPv6
// address where there is no IPv6.
void Dial::addressFailed(Verdict verdict, const std::string& why) {
  hangUp();
  state_ = State::waiting;
  if (verdict == Verdict::nobody && !leadsBack()) sawNobody_ = true;
  if (verdict == Verdict::retry) sawRetry_ = true;
  roundTrouble_ += (roundTrouble_.empty() ? "" : ", ") + plan_.addresses[index_].text() + ": " + why;
  if (++index_ < plan_.addresses.size()) return deadline_.at(loop_.now());
  roundOver();
}

// The process is gone when an address was refused or led to another process, and none may still answer.
// Otherwise the next round comes after a pause and waits longer at each address: an outage of the network
// must not look like an end.
void Dial::roundOver() {
  trouble_ = std::exchange(roundTrouble_, {});
  index_ = 0;
  if (sawNobody_ && !sawRetry_) {
    return report_(DialGone{Error(Code::remote, "connecting to a peer",
                                  "the process is gone (" + trouble_ +
                                      "); read the end of its output, and dmesg of its host, which names a "
                                      "process that the kernel killed")});
  }
  sawNobody_ = sawRetry_ = false;
  deadline_.after(pause_);
  pause_ = std::min(pause_ * 2, kLongestPause);
  patience_ = std::min(patience_ * 2, std::max(kLongestConnect, plan_.connectPatience));
}

void Dial::onEvent() {
  if (state_ == State::connecting) return onConnected();
  onReadable();
}

// The hello goes out at once; it fits a fresh socket's buffer.
void Dial::onConnected() {
  if (const int error = connectError(socket_.get()); error != 0) return connectFailed(error);
  Hello hello;
  hello.kind = plan_.kind;
  hello.flags = self_.helloFlags();
  hello.from = self_.incarnation();
  hello.to = plan_.peer;
  hello.listener = plan_.listener;
  hello.epoch = epoch_ = self_.nextEpoch();
  noise_.emplace(NoiseHandshake::Role::dialler, encodePrologue(hello), plan_.secret);
  hello.noise = noise_->say();
  const Bytes bytes = encodeHello(hello);
  if (sendSome(socket_.get(), bytes).bytes != bytes.size()) return addressFailed(Verdict::retry, "hung up");
  watch_.want(EPOLLIN);
  deadline_.after(plan_.answerPatience);
  enter(State::answer, kStartBytes);
  report_(DialContact{});
}

// After a step that returned false this object may be gone.
void Dial::onReadable() {
  for (;;) {
    const IoResult got = reader_.fill(socket_.get());
    if (got.io == Io::again) return;
    if (got.io == Io::closed) return addressFailed(Verdict::retry, "hung up");
    if (!step()) return;
  }
}

bool Dial::step() {
  switch (state_) {
    case State::answer:
      return onAnswer();
    case State::proof:
      return onProof();
    case State::infoLength:
      return onInfoLength();
    case State::infoBody:
      return onInfo();
    case State::waiting:
    case State::connecting:
      break;
  }
  return fail(Verdict::retry, "out of step");
}

bool Dial::onAnswer() {
  const auto answer = answerIn(reader_.bytes());
  if (!answer) return foreign("something else listens there");
  return *answer == Answer::proof ? enter(State::proof, kNoiseBytes) : onTurnedAway(*answer);
}

// The listener has proven itself, and our info proves us: it is sealed with the keys of this handshake.
bool Dial::onProof() {
  if (!noise_->hear(reader_.bytes())) {
    return foreign("what answers there does not know the handle's secret, or its answer was changed");
  }
  const NoiseKeys keys = noise_->finish();
  noise_.reset();
  binding_ = keys.binding;
  linkKey_ = linkKeyOf(keys);
  seal_.emplace(keys, self_.framesInClear());
  FrameHeader header;
  header.type = static_cast<uint16_t>(FrameType::info);
  Bytes bytes;
  seal_->append(header, self_.info(epoch_, plan_.received), bytes);
  if (sendSome(socket_.get(), bytes).bytes != bytes.size()) return fail(Verdict::retry, "hung up");
  return enter(State::infoLength, kLengthBytes);
}

// Answers about this listener or link end the dial; another process at the address leads to the next address.
bool Dial::onTurnedAway(Answer answer) {
  switch (answer) {
    case Answer::otherProcess:
      return foreign("another process listens there");
    case Answer::otherVersion:
      return refuse(format("the peer speaks wire version %d, this process %d; install one weft everywhere",
                           versionIn(reader_.bytes()).value_or(0), kWireVersion));
    case Answer::listenerClosed:
      return refuse("listener closed");
    case Answer::unknownLink:
      return refuse("the peer gave this link up");
    case Answer::otherSecret:
      return refuse(
          "the listener there has another secret: the handle is of another run, or the two processes read "
          "different secrets (WEFT_SECRET)");
    case Answer::otherJobSecret:
      return refuse(jobSecretDiffers());
    case Answer::otherEncryption:
      return refuse(format("WEFT_ENCRYPT is %s in this process and %s in the other; make them equal",
                           self_.framesInClear() ? "off" : "control or all",
                           self_.framesInClear() ? "control or all" : "off"));
    case Answer::proof:
      break;
  }
  return fail(Verdict::retry, "out of step");
}

std::string Dial::jobSecretDiffers() const {
  return self_.protection().jobSecret
             ? "this process has a secret of the job (WEFT_SECRET) and the process there has none; give it "
               "to every rank"
             : "the process there has a secret of the job (WEFT_SECRET) and this process has none; give it "
               "to every rank";
}

bool Dial::onInfoLength() {
  const auto length = bodyLengthOf(reader_.bytes());
  if (!length || *length == 0 || *length > kMaxInfo) return fail(Verdict::retry, "unexpected answer");
  record_.assign(reader_.bytes().begin(), reader_.bytes().end());
  return enter(State::infoBody, seal_->recordBytes(*length) - kLengthBytes);
}

// Hands the connection over. The socket is moved out before the report, as the report may destroy the dial's
// owner.
bool Dial::onInfo() {
  record_.insert(record_.end(), reader_.bytes().begin(), reader_.bytes().end());
  const auto frame = seal_->open(record_);
  if (!frame) return fail(Verdict::retry, "bytes came that the peer did not send");
  const auto header = decodeFrameHeader(frame->first(kFrameHeaderBytes));
  if (header && header->type == static_cast<uint16_t>(FrameType::reject)) {
    return fail(Verdict::retry, "both sides dialled at once");
  }
  const bool isInfo = header && header->type == static_cast<uint16_t>(FrameType::info);
  auto info = isInfo ? decodeInfo(frame->subspan(kFrameHeaderBytes)) : std::nullopt;
  if (!info) return fail(Verdict::retry, "unexpected answer");
  watch_.stop();
  deadline_.cancel();
  Linked linked{{std::move(socket_), *seal_}, std::move(*info), binding_, linkKey_};
  state_ = State::waiting;
  report_(std::move(linked));
  return false;
}

bool Dial::fail(Verdict verdict, const std::string& why) {
  addressFailed(verdict, why);
  return false;
}

// Another process has got the port after the wanted process had left it.
bool Dial::foreign(const std::string& why) {
  report_(DialMistaken{});
  return fail(Verdict::nobody, why);
}

bool Dial::refuse(const std::string& why) {
  DialRefused refused{Error(Code::remote, "connecting to " + here(), why)};
  hangUp();
  report_(std::move(refused));
  return false;
}

bool Dial::enter(State state, size_t bytes) {
  state_ = state;
  reader_.expect(bytes);
  return true;
}

void Dial::hangUp() {
  deadline_.cancel();
  watch_.stop();
  cut(socket_);
}

std::string Dial::here() const {
  return plan_.addresses[index_].text();
}

}  // namespace weft::control
