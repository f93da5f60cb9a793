// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "src/base/log.h"
#include "src/base/random.h"

namespace weft::control {

// States: hello -> proof -> infoHeader -> infoBody, or hello -> leaving for who is turned away. Every read is
// of an exact size, one deadline covers all, another one leaving.
class Acceptor::Stranger {
 public:
  Stranger(Acceptor& acceptor, Fd socket, uint64_t id)
      : acceptor_(acceptor),
        id_(id),
        socket_(std::move(socket)),
        watch_(acceptor.loop_, [this](uint32_t) { onReadable(); }),
        deadline_(acceptor.loop_, [this] { acceptor_.drop(id_); }) {}
  ~Stranger() {
    watch_.stop();
    cut(socket_);
  }

  uint64_t id() const { return id_; }
  Status start() {
    reader_.expect(kHelloBytes);
    deadline_.after(kPatience);
    return watch_.start(socket_.get(), EPOLLIN);
  }

 private:
  enum class State : uint8_t { hello, proof, infoHeader, infoBody, leaving };
  static constexpr Milliseconds kLeavePatience{1000};
  static constexpr size_t kMostReadLeaving = 16 * 1024;

  // Drops or hands over at the end: nothing may follow a step that returned false.
  void onReadable() {
    for (;;) {
      const IoResult got = reader_.fill(socket_.get());
      if (got.io == Io::again) return;
      if (got.io == Io::closed) return acceptor_.drop(id_);
      if (!step()) return;
    }
  }

  bool step() {
    switch (state_) {
      case State::hello:
        return onHello();
      case State::proof:
        return onProof();
      case State::infoHeader:
        return onInfoHeader();
      case State::infoBody:
        return onInfo();
      case State::leaving:
        break;  // it does not stop talking
    }
    return gone();
  }

  bool gone() {
    acceptor_.drop(id_);
    return false;
  }

  bool say(const Challenge& challenge) {
    const Bytes bytes = encodeChallenge(challenge);
    return sendSome(socket_.get(), bytes).bytes == bytes.size();
  }

  bool turnAway(Answer answer) {
    Challenge challenge;
    challenge.answer = answer;
    if (!say(challenge)) return gone();
    return leave();
  }

  // What the other side sent beyond what we read would make a reset of our close, and that destroys what it
  // has not read yet. So it is read, within bounds, until the other side has hung up.
  bool leave() {
    (void)shutdown(socket_.get(), SHUT_WR);
    deadline_.after(kLeavePatience);
    return next(State::leaving, kMostReadLeaving);
  }

  bool onHello() {
    const auto hello = decodeHello(reader_.bytes());
    if (!hello) return gone();
    if (hello->version != kWireVersion) return turnAway(Answer::otherVersion);
    hello_ = *hello;
    const auto secret = acceptor_.owner_.secretFor(hello_);
    if (const auto* answer = std::get_if<Answer>(&secret)) return turnAway(*answer);
    secret_ = std::get<Key128>(secret);
    fillRandom(nonce_);
    Challenge challenge;
    challenge.nonce = nonce_;
    challenge.proof = handshakeTag(ProofOf::acceptor, secret_, hello_, nonce_);
    if (!say(challenge)) return gone();
    return next(State::proof, kProofBytes);
  }

  bool onProof() {
    Tag128 proof{};
    std::copy(reader_.bytes().begin(), reader_.bytes().end(), proof.begin());
    if (!equalSecret(proof, handshakeTag(ProofOf::dialler, secret_, hello_, nonce_))) return gone();
    return next(State::infoHeader, kFrameHeaderBytes);
  }

  bool onInfoHeader() {
    const auto header = decodeFrameHeader(reader_.bytes());
    const bool fits = header && header->type == static_cast<uint16_t>(FrameType::info) &&
                      header->length > 0 && header->length <= kMaxInfo;
    return fits ? next(State::infoBody, header->length) : gone();
  }

  bool onInfo() {
    auto info = decodeInfo(reader_.bytes());
    if (!info) return gone();
    watch_.stop();
    Greeting greeting{std::move(socket_), hello_, nonce_,
                      handshakeTag(ProofOf::linkKey, secret_, hello_, nonce_), std::move(*info)};
    Owner& owner = acceptor_.owner_;
    acceptor_.drop(id_);
    owner.greeted(std::move(greeting));
    return false;
  }

  bool next(State state, size_t bytes) {
    state_ = state;
    reader_.expect(bytes);
    return true;
  }

  Acceptor& acceptor_;
  const uint64_t id_;
  Fd socket_;
  Watch watch_;
  Timer deadline_;
  State state_ = State::hello;
  ExactReader reader_;
  Hello hello_;
  Nonce nonce_{};
  Key128 secret_{};
};

Acceptor::Acceptor(EventLoop& loop, Owner& owner)
    : loop_(loop), owner_(owner), rest_(loop, [this] { listenAgain(); }) {}

Acceptor::~Acceptor() {
  strangers_.clear();
  for (Listening& listening : listening_) {
    listening.watch->stop();
    cut(listening.socket);
  }
}

Status Acceptor::start(std::vector<Fd> listeners) {
  for (Fd& fd : listeners) {
    const int raw = fd.get();
    auto watch = std::make_unique<Watch>(loop_, [this, raw](uint32_t) { acceptAll(raw); });
    listening_.push_back({std::move(fd), std::move(watch)});
    TRY(listening_.back().watch->start(raw, EPOLLIN));
  }
  return {};
}

// A bounded number a turn, so that a flood cannot keep the thread from its links.
void Acceptor::acceptAll(int listener) {
  constexpr int kAtOnce = 32;
  constexpr Milliseconds kRest{100};
  for (int i = 0; i < kAtOnce; i++) {
    auto socket = acceptOne(listener);
    if (!socket) {
      const int error = socket.error().errnum();
      const bool exhausted = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
      if (!exhausted) return;  // none waits, or the one that did went away
      if (makeRoom()) continue;
      for (Listening& listening : listening_) listening.watch->want(0);
      return rest_.after(kRest);
    }
    if (strangers_.size() >= kMaxStrangers) makeRoom();
    strangers_.push_back(std::make_unique<Stranger>(*this, socket.take(), ++lastId_));
    if (!strangers_.back()->start()) strangers_.pop_back();
  }
}

bool Acceptor::makeRoom() {
  if (strangers_.empty()) return false;
  strangers_.pop_front();
  return true;
}

void Acceptor::listenAgain() {
  for (Listening& listening : listening_) listening.watch->want(EPOLLIN);
}

void Acceptor::drop(uint64_t id) {
  strangers_.remove_if([id](const auto& stranger) { return stranger->id() == id; });
}

}  // namespace weft::control
