// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "src/control/contract.h"
#include "src/control/mailbox.h"

// The Peer in other rooms' hands: a name, some flags, and a way to the control thread. It outlives its link
// and its hub. Any thread may call the public functions, but those under "control thread" only that thread.
namespace weft::control {

// Takes a peer's messages while the peer is alive. A Link, or the SelfLink. Control thread.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  virtual void deliver(uint16_t type, Bytes body) = 0;
};

// The facts of a peer that never change.
struct PeerFacts {
  Incarnation incarnation{};
  std::string name;
  Fingerprint fingerprint;
};

class PeerImpl : public Peer, public std::enable_shared_from_this<PeerImpl> {
 public:
  PeerImpl(std::shared_ptr<Mailbox> mailbox, PeerFacts facts)
      : mailbox_(std::move(mailbox)), facts_(std::move(facts)) {}

  const Incarnation& incarnation() const override { return facts_.incarnation; }
  std::string name() const override { return facts_.name; }
  bool alive() const override { return alive_.load(std::memory_order_acquire); }
  Error reason() const override;
  bool answers() const override { return answers_.load(std::memory_order_relaxed); }
  bool settled() const override { return answers() && settled_.load(std::memory_order_relaxed); }
  void seenOnFabric(TimePoint when) override {
    seenOnFabric_.store(when.time_since_epoch().count(), std::memory_order_relaxed);
  }
  void send(uint16_t type, Bytes body) override;
  const Fingerprint& fingerprint() const override { return facts_.fingerprint; }

  // Control thread:
  void connectSink(MessageSink* sink) { sink_ = sink; }
  void deliver(uint16_t type, Bytes body) {  // any type; dropped when the peer is dead
    if (sink_) sink_->deliver(type, std::move(body));
  }
  void setAnswers(bool answers) { answers_.store(answers, std::memory_order_relaxed); }
  void setSettled(bool settled) { settled_.store(settled, std::memory_order_relaxed); }
  TimePoint lastSeenOnFabric() const {
    return TimePoint(Nanoseconds(seenOnFabric_.load(std::memory_order_relaxed)));
  }
  void markDead(const Error& reason);  // the first call counts

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const PeerFacts facts_;
  std::atomic<bool> alive_{true};
  std::atomic<bool> answers_{true};
  std::atomic<bool> settled_{true};
  std::atomic<int64_t> seenOnFabric_{0};  // nanoseconds of the clock; 0: never
  // Written before alive_ turns false (release), read after it (acquire)
  Error reason_{Code::internal, "control link", "the peer is alive"};
  MessageSink* sink_ = nullptr;  // control thread only; null: dead, or between link and sink
};

}  // namespace weft::control
