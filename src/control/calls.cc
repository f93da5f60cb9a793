// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/calls.h"

// The decision of calls, each of them once.
namespace weft::control {

void CallState::succeed(PeerRef peer, std::span<const std::byte> reply) {
  if (state() != Call::State::pending) return;
  peer_ = std::move(peer);
  reply_.assign(reply.begin(), reply.end());
  state_.store(Call::State::replied, std::memory_order_release);
}

void CallState::fail(const Error& error) {
  if (state() != Call::State::pending) return;
  error_ = error;
  state_.store(Call::State::failed, std::memory_order_release);
}

Error CallImpl::error() const {
  if (state() != State::failed) return Error(Code::internal, "connecting", "the call has not failed");
  return state_->error();
}

PendingCall* CallTable::find(uint64_t id) {
  const auto found = calls_.find(id);
  return found == calls_.end() ? nullptr : found->second.get();
}

void CallTable::fail(uint64_t id, const Error& why) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  found->second->state->fail(why);
  calls_.erase(found);
}

// Only a call that was sent waits for this peer. A call that is not sent waits for a link, and the end of
// that link decides it.
void CallTable::failSent(const Incarnation& peer, const Error& why) {
  std::erase_if(calls_, [&](const auto& entry) {
    const PendingCall& call = *entry.second;
    if (!call.sent || call.handle.process != peer) return false;
    call.state->fail(why);
    return true;
  });
}

void CallTable::failAll(const Error& why) {
  for (auto& [id, call] : calls_) call->state->fail(why);
  calls_.clear();
}

}  // namespace weft::control
