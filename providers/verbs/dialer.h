// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "providers/verbs/mailbox.h"
#include "providers/verbs/queue_pair.h"
#include "src/base/clock.h"

// Does what the kernel takes its time for, on threads of its own: connects queue pairs, as a peer's address
// may take seconds to resolve, and destroys them, which takes a card some hundred microseconds each. So no
// poll waits for either. Each Device owns one; a thread starts with the first call, and others while all are
// busy. Thread-safe.
namespace weft::verbs {

class Dialer {
 public:
  // A queue pair to connect. The Dialer holds it until the answer, so its lane may go meanwhile.
  struct Call {
    std::shared_ptr<QueuePair> pair;
    LaneAddress peer;
    std::shared_ptr<Mailbox> answerTo;  // gets the answer, a QueueEvent
    uint64_t sender = 0;                // the SendQueue's number, for the answer
    TimePoint deadline;
    TimePoint notBefore{};  // the next attempt
  };

  explicit Dialer(const Clock& clock) : clock_(clock) {}
  ~Dialer();  // waits for the calls that run, and forgets the others
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  Status dial(Call call);
  // Lets go of a queue pair that nobody uses any more. Where no thread can be had it goes at once.
  void bury(std::shared_ptr<QueuePair> pair);

 private:
  static constexpr size_t kMostThreads = 4;

  Status haveThread();  // the lock is held
  void run();
  bool work(std::unique_lock<std::mutex>& lock, TimePoint now);
  void rest(std::unique_lock<std::mutex>& lock, TimePoint now);
  void attempt(Call call);

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  std::deque<std::shared_ptr<QueuePair>> buried_;
  bool stopping_ = false;
  size_t idle_ = 0;  // threads that wait
  std::vector<std::thread> threads_;
};

}  // namespace weft::verbs
