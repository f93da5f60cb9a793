// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "tools/replay/board.h"
#include "tools/replay/table.h"

// Repeats what happened to one comm, listener or context, by the calls of its table. Its operations are done
// in order, each by the thread of its number; `next` hands the queue over from one thread to another.
namespace weft::replay {

class QueueRun {
 public:
  QueueRun(const Queue& plan, RankState& rank);

  const Queue& plan() const { return *plan_; }
  bool atEnd() const { return next_.load(std::memory_order_acquire) == plan_->ops.size(); }
  // True where the thread has the next operation.
  bool waitsFor(uint32_t thread) const;
  // Tries it. An error is about this queue.
  Result<Step> step(Times* times);
  // The next operation in words, for the message that nothing goes on.
  std::string waiting() const;
  // The queue gives up what its job's abort had made unsure.
  void giveUp() { broken_ = true; }
  bool mayGiveUp() const { return plan_->aborted || (plan_->peer != nullptr && plan_->peer->aborted); }

  // At the end of the rank: closes what the trace left open, and adds what was waited for.
  void finish(Times* times);

  Table& table() const { return *table_; }
  // There is what the queue is of: a comm, a listener or a context.
  bool established() const { return established_.load(std::memory_order_acquire); }
  void setEstablished();

 private:
  using Clock = std::chrono::steady_clock;

  Result<Step> perform(const Op& op, Times* times);
  Result<Step> performOpen(const Op& op, Times* times);
  Result<Step> finalize();
  Result<Step> make(const Op& op, Times* times);
  Result<Step> close();
  Result<Step> post(const Op& op, Times* times);
  Result<Step> flush(const Op& op);
  Result<Step> test(const Op& op, Times* times);
  void account(const Op& op, const Posted& posted, Times* times);
  Result<Step> failed(ncclResult_t result, const Op& op);
  Error error(const std::string& detail) const;

  const Queue* plan_;
  RankState* rank_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> established_{false};
  std::atomic<bool> open_{false};  // there is a comm or a listener
  std::atomic<bool> broken_{false};
  std::unique_ptr<Table> table_;  // before what is registered with it
  CommMemory memory_;
  std::map<uint64_t, Posted> live_;   // by the trace's number
  std::unique_ptr<Posted> prepared_;  // the post that is tried
  void* flushing_ = nullptr;
  bool arrived_ = false;  // the request that is tested is done, its bytes may still be on their way
  uint64_t notNow_ = 0;
  Clock::time_point since_{};  // of the first "not now"
  CommWait wait_;
};

}  // namespace weft::replay
