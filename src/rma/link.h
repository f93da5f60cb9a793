// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/rma/receiver.h"
#include "src/rma/sender.h"

// The connection with one other rank of a team. The team owns it, and the mesh the comms below; the team's
// lock guards it.
namespace weft::rma {

class Link {
 public:
  // enter() alone changes it, and it never goes back.
  enum class State : uint8_t {
    open,
    left,  // the other end said goodbye: it begins nothing more
    lost,  // error() says why
  };

  static Result<std::unique_ptr<Link>> create(uint32_t rank, uint32_t self, coll::Pipe& pipe,
                                              const OwnMemory& memory);
  Link(uint32_t rank, coll::Pipe& pipe) : rank_(rank), pipe_(pipe) {}

  uint32_t rank() const { return rank_; }
  State state() const { return state_; }
  Sender& sender() const { return *sender_; }
  Receiver& receiver() const { return *receiver_; }
  const Error& error() const { return *error_; }  // of a lost one

  // Moves what can move now. False: the link is lost.
  bool advance(Desk& desk);
  void leave();
  bool saidGoodbye() const { return saidGoodbye_; }  // the other end, also before it was lost
  void lose(Error why);
  void giveUp(const Error& why);  // by this end's fault or the other's: the other end is told
  // Tells the other end why this one cannot go on with it, as far as that leaves at once.
  void alarm(const std::string& why);
  void sayGoodbye();
  std::string stateText() const;  // empty: nothing waits

 private:
  void loseBy(const core::Comm& comm);
  void enter(State next) {
    if (next > state_) state_ = next;
  }

  const uint32_t rank_;
  coll::Pipe& pipe_;
  State state_ = State::open;
  bool saidGoodbye_ = false;
  std::optional<Error> error_;
  std::unique_ptr<Sender> sender_;
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace weft::rma
