// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/dialer.h"

#include <cerrno>

#include "src/base/process.h"
#include "src/base/reserve.h"

namespace weft::verbs {

namespace {

constexpr Milliseconds kPause{100};  // between attempts at an address that did not resolve

// A neighbour that does not answer yet may do so in a moment: its interface may just be coming up.
bool worthAnotherTry(const Error& error) {
  return error.errnum() == ETIMEDOUT || error.errnum() == ENETUNREACH || error.errnum() == EHOSTUNREACH;
}

}  // namespace

Dialer::~Dialer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    calls_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status Dialer::dial(Call call) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    TRY(thread_, startThread("weft-verbs-dial", [this] { run(); }));
  }
  calls_.push_back(std::move(call));
  changed_.notify_one();
  return {};
}

void Dialer::run() {
  const MustNotFail nobodyToTell;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (stopping_) return;
    Call call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    attempt(std::move(call));
    lock.lock();
  }
}

// One that has to be tried again goes behind the others, so that a dead peer delays nobody for long.
void Dialer::attempt(Call call) {
  Letter letter;
  letter.sender = call.sender;
  if (call.pair.use_count() > 1) {  // else its SendQueue is gone
    const Status connected = call.pair->connect(call.peer);
    if (!connected && worthAnotherTry(connected.error()) && Clock::system().now() < call.deadline) {
      std::unique_lock lock(mutex_);
      const bool alone = calls_.empty();
      calls_.push_back(std::move(call));
      if (alone) changed_.wait_for(lock, kPause, [this] { return stopping_; });
      return;
    }
    if (!connected) {
      letter.error = connected.error().errnum() ? connected.error().errnum() : EPROTO;
      letter.why = connected.error().message();
    }
  }
  call.answerTo->post(std::move(letter));
}

}  // namespace weft::verbs
