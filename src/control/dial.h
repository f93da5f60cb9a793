// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/control/event_loop.h"
#include "src/control/sockets.h"
#include "src/control/wire.h"

// Reaching a process over its addresses, one after the other and again until somebody stops us: connect,
// prove the secret, exchange infos. States: waiting -> connecting -> challenge -> infoHeader -> infoBody,
// each with a deadline; a failed address leads to the next one, a finished round without success to
// `waiting`. Control thread; the owner may destroy the dial from within any of its callbacks.
namespace weft::control {

struct DialPlan {
  HelloKind kind = HelloKind::open;
  Incarnation self{};
  Incarnation peer{};
  uint32_t listener = 0;
  Key128 secret{};
  std::vector<SocketAddress> addresses;
  std::vector<SocketAddress> own;     // where we are ourselves
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

class Dial {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual uint64_t nextEpoch() = 0;
    virtual Bytes dialInfo(uint64_t epoch) = 0;  // encoded Info
    virtual void dialLinked(Linked linked) = 0;
    virtual void dialRefused(const Error& why) = 0;  // the process is there and says no
    virtual void dialGone(const Error& why) = 0;     // no address leads to that process
    virtual void dialContact() = 0;                  // the peer's kernel answered
    virtual void dialMistaken() = 0;                 // it did not: another process has that address
  };

  Dial(EventLoop& loop, Owner& owner, DialPlan plan);
  ~Dial();
  void start();
  void hangUp();                                               // for good: it calls its owner no more
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
  Owner& owner_;
  const DialPlan plan_;
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
