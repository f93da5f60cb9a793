// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>

#include "src/base/reserve.h"
#include "src/control/contract.h"
#include "src/control/event_loop.h"

// Requests of this process that wait for their answer. CallState is shared between the user's Call (reads)
// and the control thread (decides once); CallTable is the control thread's.
namespace weft::control {

class CallState {
 public:
  Call::State state() const { return state_.load(std::memory_order_acquire); }
  const PeerRef& peer() const { return peer_; }
  const Bytes& reply() const { return reply_; }
  const Error& error() const { return error_; }

  // The first decision stands; what it says is written before the state is.
  void succeed(PeerRef peer, std::span<const std::byte> reply);
  void fail(const Error& error);

 private:
  std::atomic<Call::State> state_{Call::State::pending};
  PeerRef peer_;
  Bytes reply_;
  Error error_{Code::internal, "connecting", "the call has not failed"};
};

// The call in its user's hands. `forgotten` is called once, from the destructor, on the destroying thread.
class CallImpl : public Call {
 public:
  CallImpl(std::shared_ptr<CallState> state, std::function<void()> forgotten)
      : state_(std::move(state)), forgotten_(std::move(forgotten)) {}
  ~CallImpl() override {
    const MustNotFail closing;
    forgotten_();
  }
  State state() const override { return state_->state(); }
  PeerRef peer() const override { return state() == State::replied ? state_->peer() : nullptr; }
  const Bytes& replyBody() const override { return state_->reply(); }
  Error error() const override;

 private:
  const std::shared_ptr<CallState> state_;
  const std::function<void()> forgotten_;
};

struct PendingCall {
  PendingCall(EventLoop& loop, std::function<void()> expired) : deadline(loop, std::move(expired)) {}
  std::shared_ptr<CallState> state;
  Handle handle;
  Bytes body;
  bool sent = false;       // on a link; otherwise waiting for one
  bool prolonged = false;  // on a link when its time was over: it waits for the listener alone
  Timer deadline;
};

class CallTable {
 public:
  PendingCall* find(uint64_t id);
  void add(uint64_t id, std::unique_ptr<PendingCall> call) { calls_[id] = std::move(call); }
  void remove(uint64_t id) { calls_.erase(id); }
  void fail(uint64_t id, const Error& why);
  void failSent(const Incarnation& peer, const Error& why);  // all that wait for this peer's answer
  void failAll(const Error& why);

 private:
  std::map<uint64_t, std::unique_ptr<PendingCall>> calls_;
};

}  // namespace weft::control
