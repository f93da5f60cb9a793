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

// Requests of this process that wait for their answer. The user's Call and the control thread share a
// CallState: the control thread decides it once, the user reads it. CallTable belongs to the control thread.
namespace weft::control {

class CallState {
 public:
  Call::State state() const { return state_.load(std::memory_order_acquire); }
  const PeerRef& peer() const { return peer_; }
  const Bytes& reply() const { return reply_; }
  const Error& error() const { return error_; }

  // The first decision stands. Peer, reply and error are written before the state (release), and read after
  // it (acquire).
  void succeed(PeerRef peer, std::span<const std::byte> reply);
  void fail(const Error& error);

 private:
  std::atomic<Call::State> state_{Call::State::pending};
  PeerRef peer_;
  Bytes reply_;
  Error error_{Code::internal, "connecting", "the call has not failed"};
};

// The call in its user's hands. The destructor calls `forgotten` once, on the thread that destroys the call.
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

// A call as the control thread knows it, until it is decided.
struct PendingCall {
  PendingCall(EventLoop& loop, std::function<void()> expired) : deadline(loop, std::move(expired)) {}
  std::shared_ptr<CallState> state;
  Handle handle;           // of the listener to reach
  Bytes body;              // the user's request
  bool sent = false;       // on a link; false: it waits for a link
  bool prolonged = false;  // it was on a link when its time was over, and has the listener's time now
  Timer deadline;          // fires ControlLoop::expireCall
};

// All calls that are not decided, by their id. Each function that decides a call removes it.
class CallTable {
 public:
  PendingCall* find(uint64_t id);
  void add(uint64_t id, std::unique_ptr<PendingCall> call) { calls_[id] = std::move(call); }
  void remove(uint64_t id) { calls_.erase(id); }
  void fail(uint64_t id, const Error& why);
  void failSent(const Incarnation& peer, const Error& why);  // all calls that wait for this peer's answer
  void failAll(const Error& why);

 private:
  std::map<uint64_t, std::unique_ptr<PendingCall>> calls_;
};

}  // namespace weft::control
