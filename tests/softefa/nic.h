// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "tests/softefa/engine.h"
#include "tests/softefa/inbox.h"
#include "tests/softefa/requester.h"
#include "tests/softefa/responder.h"

namespace softefa {

// One opened NIC: its lock, its thread and everything between the verbs calls and the wire. Hardware moves
// data without the application, hence the thread; while the application polls, polling does the work and the
// thread stays out of its way. All public functions may be called by any thread.
class Nic {
 public:
  // nullptr with a word on stderr when the NIC has no inbox left or the fabric's folder cannot be made.
  static std::unique_ptr<Nic> open(const Settings& settings, const Identity& identity, unsigned number);
  // For open.
  Nic(const Settings& settings, const Identity& identity, unsigned number, std::shared_ptr<Inbox> inbox);
  ~Nic();
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  // Everything guarded by the lock, for the verbs calls.
  class Locked {
   public:
    explicit Locked(Nic& nic) : lock_(nic.mutex_), nic_(nic) {}
    Engine* operator->() { return &nic_.engine_; }

   private:
    std::unique_lock<std::mutex> lock_;
    Nic& nic_;
  };
  Locked lock() { return Locked(*this); }
  Counters& counters() { return engine_.counters; }
  const Settings& settings() const { return engine_.settings; }
  const Identity& identity() const { return engine_.identity; }

  // The errno a call is to fail with by a fault, 0 for none.
  int plannedFailure(const char* call);
  bool apply(const std::string& faults, std::string& wrong);
  bool dead();

  QueuePair* createQueuePair(const QueuePair& wanted);  // nullptr: no more of them
  void destroyQueuePair(QueuePair* qp);
  void setState(QueuePair& qp, ibv_qp_state state);
  // ENOMEM when the send queue cannot take all of them.
  int post(QueuePair& qp, const std::vector<WorkRequest>& work);
  int postReceive(QueuePair& qp, const ReceiveWork& work);

  // Does the work of the NIC on the caller's time, unless somebody is at it.
  void poll();

 private:
  struct Held {
    Clock::time_point release;
    uint64_t order;
    Packet packet;
    bool operator<(const Held& other) const {  // the queue gives the greatest first
      return release != other.release ? release > other.release : order > other.order;
    }
  };

  void run();
  bool polledLately() const;
  void workOrWait();
  bool progress(Clock::time_point now);
  bool drain(Clock::time_point now);
  void arrive(const PacketHeader& header, const std::byte* payload, Clock::time_point now);
  void deliver(const PacketHeader& header, const std::byte* payload, Clock::time_point now);
  bool releaseHeld(Clock::time_point now);
  void hold(const PacketHeader& header, const std::byte* payload, Clock::time_point release);
  void readControl(Clock::time_point now);
  void applyDeath();
  void flush(QueuePair& qp);
  Clock::time_point nextWork(Clock::time_point now);

  std::mutex mutex_;
  Engine engine_;
  Requester requester_;
  Responder responder_;
  const std::shared_ptr<Inbox> inbox_;
  std::priority_queue<Held> held_;
  uint64_t heldOrder_ = 0;
  std::vector<Packet> parked_;  // of muted hosts
  Clock::time_point lastExpiry_{};
  Clock::time_point lastControl_{};
  std::string controlText_;
  std::atomic<int64_t> lastPoll_{0};  // of the application, in the clock's units
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace softefa
