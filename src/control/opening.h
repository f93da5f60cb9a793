// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>

#include "src/control/dial.h"

// The way to a process we have no link to yet, and the calls that wait for it. Each dial proves the secret of
// the call at the front, so what is said about that secret or listener concerns that call alone. Control
// thread.
namespace weft::control {

class Opening : public Dial::Owner {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual uint64_t nextEpoch() = 0;
    virtual Bytes ownInfo(uint64_t epoch, uint64_t received) = 0;
    virtual void openingLinked(Opening& opening, Linked linked) = 0;
    virtual void openingRefused(Opening& opening, const Error& why) = 0;  // the front call
    virtual void openingGone(Opening& opening, const Error& why) = 0;     // all of them
  };

  Opening(EventLoop& loop, Owner& owner, const Incarnation& peer) : loop_(loop), owner_(owner), peer_(peer) {}

  void dial(DialPlan plan);
  // To be kept until the running callbacks returned.
  std::unique_ptr<Dial> hangUp() { return std::move(dial_); }
  const Incarnation& peer() const { return peer_; }
  bool shaking() const { return dial_ && dial_->shaking(); }
  std::string trouble() const { return dial_ ? dial_->trouble() : std::string(); }

  std::deque<uint64_t> calls;  // by id; the front one is dialled for

 private:
  uint64_t nextEpoch() override { return owner_.nextEpoch(); }
  Bytes dialInfo(uint64_t epoch) override { return owner_.ownInfo(epoch, 0); }
  void dialLinked(Linked linked) override { owner_.openingLinked(*this, std::move(linked)); }
  void dialRefused(const Error& why) override { owner_.openingRefused(*this, why); }
  void dialGone(const Error& why) override { owner_.openingGone(*this, why); }
  void dialContact() override {}
  void dialMistaken() override {}

  EventLoop& loop_;
  Owner& owner_;
  const Incarnation peer_;
  std::unique_ptr<Dial> dial_;
};

}  // namespace weft::control
