// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/dialer.h"

#include <algorithm>
#include <cerrno>

#include "src/base/process.h"
#include "src/base/reserve.h"

// The threads that connect and destroy queue pairs, and their lists.
namespace weft::verbs {

namespace {

constexpr Milliseconds kPause{100};  // between two attempts at an address that did not resolve
constexpr Milliseconds kSlice{5};    // a new call waits so long at most, where others rest

// A neighbour that does not answer yet may do so soon: its interface may just be coming up.
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
  for (std::thread& thread : threads_) thread.join();
}

Status Dialer::haveThread() {
  if (idle_ > 0 || threads_.size() >= kMostThreads) return {};
  auto thread = startThread("weft-verbs-dial", [this] { run(); });
  if (thread) threads_.push_back(std::move(*thread));
  return threads_.empty() ? Status(thread.takeError()) : Status();
}

Status Dialer::dial(Call call) {
  const std::lock_guard lock(mutex_);
  TRY(haveThread());
  calls_.push_back(std::move(call));
  changed_.notify_one();
  return {};
}

void Dialer::bury(std::shared_ptr<QueuePair> pair) {
  const std::lock_guard lock(mutex_);
  if (!pair || !haveThread()) return;
  buried_.push_back(std::move(pair));
  changed_.notify_one();
}

void Dialer::run() {
  const MustNotFail nobodyToTell;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const TimePoint now = clock_.now();
    if (work(lock, now)) continue;
    idle_++;
    rest(lock, now);
    idle_--;
  }
}

// Peers that wait for a connection come before queue pairs that nobody waits for. False: nothing is due.
bool Dialer::work(std::unique_lock<std::mutex>& lock, TimePoint now) {
  const auto due =
      std::find_if(calls_.begin(), calls_.end(), [&](const Call& call) { return call.notBefore <= now; });
  if (due != calls_.end()) {
    Call call = std::move(*due);
    calls_.erase(due);
    lock.unlock();
    attempt(std::move(call));
    lock.lock();
    return true;
  }
  if (buried_.empty()) return false;
  std::shared_ptr<QueuePair> pair = std::move(buried_.front());
  buried_.pop_front();
  lock.unlock();
  pair.reset();
  lock.lock();
  return true;
}

// Waits until a call is due, or another one may have come. The time of a call passes by the clock, which no
// notice ends, so a sleep is short.
void Dialer::rest(std::unique_lock<std::mutex>& lock, TimePoint now) {
  if (calls_.empty()) return changed_.wait(lock);
  const auto sooner = [](const Call& a, const Call& b) { return a.notBefore < b.notBefore; };
  const Call& next = *std::min_element(calls_.begin(), calls_.end(), sooner);
  const Nanoseconds time = std::min<Nanoseconds>(next.notBefore - now, kSlice);
  lock.unlock();
  clock_.sleep(time);
  lock.lock();
}

// A call that has to be tried again goes behind the others and rests. So dead peers delay no other call for
// long and cost no processor time, however many there are.
void Dialer::attempt(Call call) {
  QueueEvent event;
  event.sender = call.sender;
  if (call.pair.use_count() > 1 && !call.pair->failed()) {  // else its lane is gone
    const Status connected = call.pair->connect(call.peer);
    if (!connected && worthAnotherTry(connected.error()) && clock_.now() < call.deadline) {
      call.notBefore = clock_.now() + kPause;
      const std::lock_guard lock(mutex_);
      return calls_.push_back(std::move(call));
    }
    if (!connected) {
      event.error = connected.error().errnum() ? connected.error().errnum() : EPROTO;
      event.why = connected.error().message();
    }
  }
  call.answerTo->post(std::move(event));
}

}  // namespace weft::verbs
