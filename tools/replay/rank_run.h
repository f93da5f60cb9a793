// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <thread>

#include "tools/netdriver/coll_net.h"
#include "tools/netdriver/library.h"
#include "tools/netdriver/rma_table.h"
#include "tools/replay/queue_run.h"

// A rank of a replay: its queues, and the threads that its trace has. Made and ended by one thread.
namespace weft::replay {

// The state that the queues of a rank share.
struct RankState {
  const RankPlan* plan = nullptr;
  netdriver::Net* net = nullptr;
  netdriver::Context* context = nullptr;          // of what has none in the trace
  const netdriver::CollTable* offload = nullptr;  // null: the plugin has none
  netdriver::RmaTable* oneSided = nullptr;        // the same
  Board* board = nullptr;
  int devices = 1;
  int rank = 0;
  std::map<uint64_t, QueueRun*> contexts;
  std::map<const Queue*, QueueRun*> byPlan;

  // Calls that sleep until all ranks of a group make them come in the order of the trace, so that two ranks
  // never wait for each other in two groups.
  bool maySleep(const Op& op) const {
    const size_t next = asleep.load(std::memory_order_acquire);
    return next < plan->blocking.size() && plan->blocking[next] == op.event;
  }
  void slept() { asleep.fetch_add(1, std::memory_order_release); }
  std::atomic<size_t> asleep{0};  // of plan->blocking
};

class RankRun {
 public:
  RankRun(const RankPlan& plan, int rank, netdriver::Net& net, netdriver::Context& context, Board& board,
          int devices, const netdriver::CollTable* offload, netdriver::RmaTable* oneSided,
          std::chrono::seconds stallLimit);

  void start();
  // Waits for the threads; a failure is on the board.
  void join();
  // Closes what the trace left open. After join.
  void finish();
  Times times() const;

 private:
  using Clock = std::chrono::steady_clock;
  void work(uint32_t thread);
  Status drive(uint32_t thread, Times* times);
  Result<bool> pass(std::vector<QueueRun*>* mine, uint32_t thread, Times* times);
  Status checkStall(const std::vector<QueueRun*>& mine, uint32_t thread);
  int64_t millisecondsSinceStart() const;

  RankState state_;
  std::deque<QueueRun> queues_;
  std::chrono::seconds stallLimit_;
  std::vector<std::thread> threads_;
  std::vector<Times> perThread_;
  std::atomic<int64_t> moved_{0};  // milliseconds since the start
  Clock::time_point began_;
  Clock::time_point ended_;
  Times rest_;
};

}  // namespace weft::replay
