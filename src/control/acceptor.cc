// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "src/base/log.h"
#include "src/base/net/guest.h"

// Accepting, and the accepting side of the handshake.
namespace weft::control {

// The kernel chooses the port for the first address, and the others take the same number. A number that
// another process has for one of them leads to a new try. An address that no socket can have just now, as it
// is being checked or has gone, is left out.
Result<ListeningSockets> openListeners(const std::vector<SocketAddress>& addresses, const PortRange& ports) {
  constexpr const char* kOpening = "opening the control port";
  constexpr int kTries = 64;
  Error last(Code::system, kOpening, "this host has no address");
  for (int i = 0; i < kTries; i++) {
    ListeningSockets out;
    bool portTaken = false;
    for (const SocketAddress& address : addresses) {
      const uint16_t port = out.addresses.empty() ? 0 : out.addresses.front().port();
      auto socket = listenOn(address.withPort(port), kOpening, Hears::itsFamily, ports);
      if (socket) {
        out.addresses.push_back(address.withPort(localAddress(socket->get()).port()));
        out.sockets.push_back(socket.take());
      } else {
        last = socket.takeError();
        portTaken = portTaken || last.errnum() == EADDRINUSE;
      }
    }
    if (!out.sockets.empty() && !portTaken) return out;
  }
  return last;
}

// The accepting side's talk with a guest. States: start -> hello -> infoLength -> infoBody; a guest that is
// turned away goes from start or hello to leaving. Every read has an exact size. A single deadline covers the
// talk, and a second one the state leaving.
class Acceptor::Handshake {
 public:
  Handshake(Acceptor& acceptor, Fd socket, uint64_t id)
      : acceptor_(acceptor),
        id_(id),
        from_(remoteAddress(socket.get())),
        guest_(std::move(socket), acceptor.loop_.now() + kPatience, kStartBytes),
        watch_(acceptor.loop_, [this](uint32_t) { onReadable(); }),
        deadline_(acceptor.loop_, [this] { acceptor_.drop(id_); }) {}
  ~Handshake() {
    watch_.stop();
    cut(guest_.socket());
  }

  uint64_t id() const { return id_; }
  const SocketAddress& from() const { return from_; }
  Status start() {
    deadline_.at(guest_.deadline());
    return watch_.start(guest_.socket().get(), EPOLLIN);
  }

 private:
  enum class State : uint8_t { start, hello, infoLength, infoBody, leaving };
  static constexpr Milliseconds kLeavePatience{1000};
  static constexpr size_t kMostReadLeaving = 16 * 1024;

  // Reads until nothing is there. A step that returns false has dropped or handed over this object, so
  // nothing may follow it.
  void onReadable() {
    for (;;) {
      const Guest::Heard heard = guest_.hear(acceptor_.loop_.now());
      if (heard == Guest::Heard::nothing) return;
      if (heard == Guest::Heard::gone) return acceptor_.drop(id_);
      if (!step()) return;
    }
  }

  bool step() {
    switch (state_) {
      case State::start:
        return onStart();
      case State::hello:
        return onHello();
      case State::infoLength:
        return onInfoLength();
      case State::infoBody:
        return onInfo();
      case State::leaving:
        break;  // the guest does not stop talking
    }
    return gone();
  }

  bool gone() {
    acceptor_.drop(id_);
    return false;
  }

  bool turnAway(Answer answer) {
    Challenge challenge;
    challenge.answer = answer;
    if (!guest_.say(encodeChallenge(challenge))) return gone();
    return leave();
  }

  // Closing a socket with unread bytes resets the connection, and a reset destroys bytes that the other side
  // has not read yet (RFC 1122, 4.2.2.13). So the guest's bytes are read, within bounds, until it has hung
  // up.
  bool leave() {
    (void)shutdown(guest_.socket().get(), SHUT_WR);
    guest_.allowUntil(acceptor_.loop_.now() + kLeavePatience);
    deadline_.at(guest_.deadline());
    return next(State::leaving, kMostReadLeaving);
  }

  // The first bytes are those of every version.
  bool onStart() {
    const auto version = versionIn(guest_.bytes());
    if (!version) return gone();
    if (*version != kWireVersion) return turnAway(Answer::otherVersion);
    keep();
    return next(State::hello, kHelloBytes - kStartBytes);
  }

  // What this end says proves that it has the secret. A stranger's hello is answered without a key exchange.
  bool onHello() {
    keep();
    const auto hello = decodeHello(record_);
    if (!hello) return gone();
    hello_ = *hello;
    const auto secret = acceptor_.secretFor_(hello_);
    if (const auto* answer = std::get_if<Answer>(&secret)) return turnAway(*answer);
    const auto differs = hello_.flags ^ acceptor_.flags_;
    if (differs != 0) acceptor_.warnOfOtherFlags(hello_, from_);
    if (differs & kHasJobSecret) return turnAway(Answer::otherJobSecret);
    if (differs & kFramesInClear) return turnAway(Answer::otherEncryption);
    NoiseHandshake noise(NoiseHandshake::Role::acceptor, encodePrologue(hello_), std::get<Key256>(secret));
    if (!noise.hear(hello_.noise)) return turnAway(Answer::otherSecret);
    Challenge challenge;
    challenge.noise = noise.say();
    keys_ = noise.finish();
    seal_.emplace(keys_, (acceptor_.flags_ & kFramesInClear) != 0);
    if (!guest_.say(encodeChallenge(challenge))) return gone();
    record_.clear();
    return next(State::infoLength, kLengthBytes);
  }

  bool onInfoLength() {
    const auto length = bodyLengthOf(guest_.bytes());
    if (!length || *length == 0 || *length > kMaxInfo) return gone();
    keep();
    return next(State::infoBody, seal_->recordBytes(*length) - kLengthBytes);
  }

  // The info proves the guest, as it is sealed with the keys of this handshake. A wrong one gets no answer.
  // The socket is handed over; this object is gone after drop(), so everything is moved out before.
  bool onInfo() {
    keep();
    const auto frame = seal_->open(record_);
    const auto header = frame ? decodeFrameHeader(frame->first(kFrameHeaderBytes)) : std::nullopt;
    if (!header || header->type != static_cast<uint16_t>(FrameType::info)) return gone();
    auto info = decodeInfo(frame->subspan(kFrameHeaderBytes));
    if (!info) return gone();
    watch_.stop();
    Greeting greeting{
        {std::move(guest_.socket()), *seal_}, hello_, keys_.binding, linkKeyOf(keys_), std::move(*info)};
    Acceptor& acceptor = acceptor_;
    acceptor.drop(id_);
    acceptor.greeted_(std::move(greeting));
    return false;
  }

  void keep() { record_.insert(record_.end(), guest_.bytes().begin(), guest_.bytes().end()); }

  bool next(State state, size_t bytes) {
    state_ = state;
    guest_.expect(bytes);
    return true;
  }

  Acceptor& acceptor_;
  const uint64_t id_;
  const SocketAddress from_;
  Guest guest_;
  Watch watch_;
  Timer deadline_;
  State state_ = State::start;
  Bytes record_;  // what was read of the present message
  Hello hello_;
  NoiseKeys keys_;
  std::optional<FrameSeal> seal_;  // from state infoLength on
};

Acceptor::Acceptor(EventLoop& loop, uint8_t flags, SecretFor secretFor, Greeted greeted)
    : loop_(loop),
      flags_(flags),
      secretFor_(std::move(secretFor)),
      greeted_(std::move(greeted)),
      rest_(loop, [this] { listenAgain(); }) {}

Acceptor::~Acceptor() {
  handshakes_.clear();
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

// Accepts a bounded number in a turn, so that a flood of guests cannot keep the thread from its links.
void Acceptor::acceptAll(int listener) {
  constexpr int kAtOnce = 32;
  constexpr Milliseconds kRest{100};
  for (int i = 0; i < kAtOnce; i++) {
    auto socket = acceptOne(listener);
    if (!socket) {
      const int error = socket.error().errnum();
      const bool exhausted = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
      if (!exhausted) return;  // no guest waits, or the guest that waited has gone
      // Without descriptors the oldest guest makes room; without a guest, accepting rests for kRest.
      if (makeRoom()) continue;
      for (Listening& listening : listening_) listening.watch->want(0);
      return rest_.after(kRest);
    }
    if (handshakes_.size() >= kMostGuests) makeRoom();
    handshakes_.push_back(std::make_unique<Handshake>(*this, socket.take(), ++lastId_));
    if (!handshakes_.back()->start()) handshakes_.pop_back();
  }
}

bool Acceptor::makeRoom() {
  if (handshakes_.empty()) return false;
  handshakes_.erase(oldestOfLargestCrowd(handshakes_.begin(), handshakes_.end(),
                                         [](const auto& handshake) { return &handshake->from(); }));
  return true;
}

// The word of a process that has proven nothing ends no listener; the other process ends its own call.
void Acceptor::warnOfOtherFlags(const Hello& hello, const SocketAddress& from) {
  if (std::exchange(warned_, true)) return;
  const bool secret = ((hello.flags ^ flags_) & kHasJobSecret) != 0;
  const bool theirs = (hello.flags & (secret ? kHasJobSecret : kFramesInClear)) != 0;
  const char* what = secret ? (theirs ? "has a secret of the job (WEFT_SECRET), and this process has none"
                                      : "has no secret of the job (WEFT_SECRET), and this process has one")
                            : (theirs ? "has WEFT_ENCRYPT=off, and this process encrypts"
                                      : "encrypts, and this process has WEFT_ENCRYPT=off");
  WEFT_LOG(warn, "a process at %s that calls this one %s; it is turned away: make all ranks equal",
           from.ipText().c_str(), what);
}

void Acceptor::listenAgain() {
  for (Listening& listening : listening_) listening.watch->want(EPOLLIN);
}

void Acceptor::drop(uint64_t id) {
  handshakes_.remove_if([id](const auto& handshake) { return handshake->id() == id; });
}

}  // namespace weft::control
