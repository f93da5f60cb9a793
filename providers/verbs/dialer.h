// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "providers/verbs/mailbox.h"
#include "providers/verbs/queue_pair.h"
#include "src/base/clock.h"

// Connects queue pairs on a thread of its own, since the kernel may take seconds to resolve a peer's address.
// Each Device owns one; the thread starts with the first call. Thread-safe.
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
  ~Dialer();  // waits for the call that runs, and forgets the others
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  Status dial(Call call);

 private:
  void run();
  void rest(std::unique_lock<std::mutex>& lock, TimePoint now);
  void attempt(Call call);

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace weft::verbs
