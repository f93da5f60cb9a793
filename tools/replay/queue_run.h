// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "tools/replay/board.h"
#include "tools/replay/coll_run.h"
#include "tools/replay/memory.h"
#include "tools/replay/times.h"

// Repeats what happened to one comm, listener or context. Its operations are done in order, each by the
// thread of its number; `next` hands the queue over from one thread to another.
namespace weft::replay {

struct RankState;  // rank_run.h

class QueueRun : private Registrar {
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
  CollRun* coll() const { return coll_.get(); }

  const netdriver::Comm& comm() const { return comm_; }
  void adopt(netdriver::Comm comm);
  bool established() const { return established_.load(std::memory_order_acquire); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Live {
    void* raw = nullptr;
    const Op* op = nullptr;
    std::vector<Place> places;
    Clock::time_point posted;
  };

  Result<Step> perform(const Op& op, Times* times);
  Result<Step> init(const Op& op);
  Result<Step> finalize();
  Result<Step> listen(const Op& op);
  Result<Step> connect(const Op& op, Times* times);
  Result<Step> accept(const Op& op, Times* times);
  Result<Step> close();
  Result<Step> post(const Op& op, Times* times);
  Result<Step> flush(const Op& op, Times* times);
  Result<Step> test(const Op& op, Times* times);
  Result<Step> finishTest(const Op& op, Live& live, std::span<const int> sizes, Times* times);
  Status prepare(const Op& op);
  Result<void*> add(std::span<std::byte> memory) override;
  void remove(void* mhandle) override;
  ncclResult_t postPrepared(const Op& op, void** request);
  Status checkMessage(const Live& live, size_t part, uint64_t told, bool* arrived) const;
  Result<Step> failed(ncclResult_t result, const Op& op);
  Error error(const std::string& detail) const;
  void* contextRaw() const;
  int device() const;

  const Queue* plan_;
  RankState* rank_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> established_{false};
  std::atomic<bool> open_{false};  // there is a comm
  std::atomic<bool> broken_{false};
  std::unique_ptr<CollRun> coll_;  // null: of the network's table
  netdriver::Comm comm_;
  std::unique_ptr<netdriver::Context> context_;
  netdriver::Handle handle_{};
  bool hasHandle_ = false;
  CommMemory memory_;
  std::map<uint64_t, Live> live_;  // by the trace's number
  std::vector<Place> prepared_;    // of the post that is tried
  void* flushing_ = nullptr;
  bool arrived_ = false;  // the request that is tested is done, its bytes may still be on their way
  uint64_t notNow_ = 0;
  Clock::time_point since_{};
  CommWait wait_;
};

}  // namespace weft::replay
