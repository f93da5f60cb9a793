// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/base/net/sockets.h"
#include "src/control/event_loop.h"
#include "src/control/frame_seal.h"
#include "src/control/self.h"

// Reaches a process over its addresses, one after the other, and again until the dial is stopped: connect,
// prove the secret, exchange infos. States: waiting -> connecting -> answer -> proof -> infoLength ->
// infoBody, each with a deadline. A failed address leads to the next one; a finished round without success
// leads to `waiting`. Reports are values. After hangUp() there is none. The object has to live until the
// report that it is in has returned. A Link owns it. Control thread.
namespace weft::control {

// The task of a dial. A value.
struct DialPlan {
  HelloKind kind = HelloKind::open;
  Incarnation peer{};
  uint32_t listener = 0;  // open: the listener that the hello names
  Key256 secret{};        // of the proofs
  std::vector<SocketAddress> addresses;
  uint64_t received = 0;              // resume: the highest number among the peer's frames that we have
  Milliseconds connectPatience{300};  // per address; doubles every round
  Milliseconds answerPatience{3000};  // per step once connected
};

// A connection on which both sides have proven the secret.
struct Linked {
  SealedSocket socket;
  Info info;
  Key256 binding{};  // the hash of the handshake
  Key256 linkKey{};
};

// The reports of a dial. After one of the first three, which are Linked, DialRefused and DialGone, the dial
// is done.
struct DialRefused {  // the process is there and refuses
  Error why;
};
struct DialGone {  // no address leads to that process
  Error why;
};
struct DialContact {};   // the peer's kernel answered
struct DialMistaken {};  // the kernel was not the peer's: another process has that address
using DialReport = std::variant<Linked, DialRefused, DialGone, DialContact, DialMistaken>;

class Dial {
 public:
  using Report = std::function<void(DialReport report)>;

  Dial(EventLoop& loop, Self& self, DialPlan plan, Report report);
  ~Dial();
  void start();
  void hangUp();  // for good: no report comes any more
  // True: a connection is there, and proofs are under way.
  bool shaking() const { return state_ > State::connecting; }
  // Why the last round of addresses failed, for people.
  const std::string& trouble() const { return trouble_; }

 private:
  enum class State : uint8_t { waiting, connecting, answer, proof, infoLength, infoBody };
  enum class Verdict : uint8_t { nobody, unreachable, retry };  // on an address in a round

  // A step of the dial ends in a report, the next step, or addressFailed().
  void tryAddress();
  bool leadsBack() const;
  void addressFailed(Verdict verdict, const std::string& why);
  void roundOver();
  void onEvent();
  void onConnected();
  void connectFailed(int error);
  void onReadable();
  bool step();
  bool onAnswer();
  bool onTurnedAway(Answer answer);
  std::string jobSecretDiffers() const;
  bool onProof();
  bool onInfoLength();
  bool onInfo();
  bool fail(Verdict verdict, const std::string& why);
  bool foreign(const std::string& why);
  bool refuse(const std::string& why);
  bool enter(State state, size_t bytes);
  void onDeadline();
  std::string here() const;

  EventLoop& loop_;
  Self& self_;
  const DialPlan plan_;
  const Report report_;
  const bool elsewhere_;  // the peer has an address that is not ours, too
  State state_ = State::waiting;
  Fd socket_;
  Watch watch_;
  Timer deadline_;
  ExactReader reader_;
  size_t index_ = 0;        // into plan_.addresses
  Milliseconds patience_;   // for a connect of this round
  Milliseconds pause_{20};  // before the next round
  bool sawNobody_ = false;  // in this round an address was refused, or led to another process
  bool sawRetry_ = false;   // in this round an address may still answer later
  std::string trouble_;     // of the last whole round
  std::string roundTrouble_;
  uint64_t epoch_ = 0;                   // of the hello
  std::optional<NoiseHandshake> noise_;  // of the present connection
  std::optional<FrameSeal> seal_;        // from state infoLength on, as the two after it
  Key256 binding_{};
  Key256 linkKey_{};
  Bytes record_;  // of the info, as far as it was read
};

}  // namespace weft::control
