// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "src/base/net/sockets.h"
#include "src/control/event_loop.h"
#include "src/control/self.h"

// Reaching a process over its addresses, one after the other and again until the dial is stopped: connect,
// prove the secret, exchange infos. States: waiting -> connecting -> challenge -> infoHeader -> infoBody,
// each with a deadline; a failed address leads to the next one, a finished round without success to
// `waiting`. Reports are values; after hangUp() there is none, and the object has to live until
// the report that it is in has returned. Control thread.
namespace weft::control {

struct DialPlan {
  HelloKind kind = HelloKind::open;
  Incarnation peer{};
  uint32_t listener = 0;
  Key128 secret{};
  std::vector<SocketAddress> addresses;
  uint64_t received = 0;              // resume: up to which number we have the peer's frames
  Milliseconds connectPatience{300};  // doubles every round
  Milliseconds answerPatience{3000};
};

// A connection on which both sides proved the secret.
struct Linked {
  Fd socket;
  Info info;
  LinkNonces nonces;
  Key128 linkKey{};
};

// The reports of a dial. After the first three it is done.
struct DialRefused {  // the process is there and says no
  Error why;
};
struct DialGone {  // no address leads to that process
  Error why;
};
struct DialContact {};   // the peer's kernel answered
struct DialMistaken {};  // it did not: another process has that address
using DialReport = std::variant<Linked, DialRefused, DialGone, DialContact, DialMistaken>;

class Dial {
 public:
  using Report = std::function<void(DialReport report)>;

  Dial(EventLoop& loop, Self& self, DialPlan plan, Report report);
  ~Dial();
  void start();
  void hangUp();                                               // for good: nothing is reported any more
  bool shaking() const { return state_ > State::connecting; }  // a connection stands, proofs are under way
  const std::string& trouble() const { return trouble_; }      // why the last addresses failed, for people

 private:
  enum class State : uint8_t { waiting, connecting, challenge, infoHeader, infoBody };
  enum class Verdict : uint8_t { nobody, unreachable, retry };  // of one address in one round

  void tryAddress();
  bool leadsBack() const;
  void addressFailed(Verdict verdict, const std::string& why);
  void roundOver();
  void onEvent();
  void onConnected();
  void connectFailed(int error);
  void onReadable();
  bool step();
  bool onChallenge();
  bool onTurnedAway(const Challenge& challenge);
  bool onInfoHeader();
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
  size_t index_ = 0;
  Milliseconds patience_;
  Milliseconds pause_{20};
  bool sawNobody_ = false;  // in this round
  bool sawRetry_ = false;
  std::string trouble_;
  std::string roundTrouble_;
  Hello hello_;
  Nonce acceptorNonce_{};
};

}  // namespace weft::control
