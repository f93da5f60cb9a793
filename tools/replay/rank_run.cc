// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/rank_run.h"

#include <algorithm>

#include <fmt/format.h>

namespace weft::replay {

namespace {

// How long a comm that the job aborted is waited for when nothing else goes on.
constexpr int64_t kAbortPatienceMs = 3000;
constexpr int kStepsAtOnce = 16;  // of one queue, before others are looked at
constexpr int kIdlePasses = 64;   // before the processor is offered to others

}  // namespace

RankRun::RankRun(const RankPlan& plan, int rank, netdriver::Net& net, netdriver::Context& context,
                 Board& board, int devices, const netdriver::CollTable* offload,
                 netdriver::RmaTable* oneSided, std::chrono::seconds stallLimit)
    : stallLimit_(stallLimit), perThread_(plan.threads), began_(Clock::now()) {
  state_.plan = &plan;
  state_.net = &net;
  state_.context = &context;
  state_.board = &board;
  state_.devices = devices;
  state_.offload = offload;
  state_.oneSided = oneSided;
  state_.rank = rank;
  for (const Queue& queue : plan.queues) {
    QueueRun& run = queues_.emplace_back(queue, state_);
    state_.byPlan[&queue] = &run;
    if (queue.kind == QueueKind::context || queue.kind == QueueKind::collContext ||
        queue.kind == QueueKind::rmaContext)
      state_.contexts[queue.number] = &run;
  }
}

void RankRun::start() {
  began_ = Clock::now();
  for (uint32_t thread = 0; thread < state_.plan->threads; ++thread)
    threads_.emplace_back([this, thread] { work(thread); });
}

void RankRun::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  ended_ = Clock::now();
}

void RankRun::finish() {
  for (QueueRun& queue : queues_) queue.finish(&rest_);
  queues_.clear();  // contexts that the trace did not finalize
}

Times RankRun::times() const {
  Times all = rest_;
  for (const Times& times : perThread_) all.add(times);
  all.wall = {static_cast<uint64_t>(std::chrono::nanoseconds(ended_ - began_).count()),
              state_.plan->recordedNanoseconds};
  return all;
}

void RankRun::work(uint32_t thread) {
  const Status result = drive(thread, &perThread_[thread]);
  if (!result) state_.board->fail(result.error().message(), true);
}

int64_t RankRun::millisecondsSinceStart() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_).count();
}

// Tries each queue whose next operation is this thread's; whether anything was done.
Result<bool> RankRun::pass(std::vector<QueueRun*>* mine, uint32_t thread, Times* times) {
  bool moved = false;
  for (QueueRun* queue : *mine)
    for (int steps = 0; steps < kStepsAtOnce && queue->waitsFor(thread); ++steps) {
      TRY(const Step step, queue->step(times));
      if (step == Step::later) break;
      moved = true;
    }
  return moved;
}

Status RankRun::drive(uint32_t thread, Times* times) {
  std::vector<QueueRun*> mine;
  for (QueueRun& queue : queues_)
    for (const Op& op : queue.plan().ops)
      if (op.event->thread == thread) {
        mine.push_back(&queue);
        break;
      }
  for (int idle = 0; !mine.empty() && !state_.board->failed();) {
    TRY(const bool moved, pass(&mine, thread, times));
    if (moved) {
      moved_.store(millisecondsSinceStart());
      idle = 0;
    }
    // Another thread may have done the last of it, as the one that closes does.
    std::erase_if(mine, [](const QueueRun* queue) { return queue->atEnd(); });
    if (moved || ++idle % kIdlePasses != 0) continue;
    std::this_thread::yield();
    TRY(checkStall(mine, thread));
  }
  return {};
}

Status RankRun::checkStall(const std::vector<QueueRun*>& mine, uint32_t thread) {
  const int64_t idle = millisecondsSinceStart() - moved_.load();
  if (idle < kAbortPatienceMs) return {};
  for (QueueRun* queue : mine)
    if (queue->waitsFor(thread) && queue->mayGiveUp()) queue->giveUp();
  if (idle < std::chrono::milliseconds(stallLimit_).count()) return {};
  // The one that is due here, else one that another thread has to go on with.
  const auto due =
      std::find_if(mine.begin(), mine.end(), [&](QueueRun* queue) { return queue->waitsFor(thread); });
  return Error(Code::timeout, "replay",
               fmt::format("nothing went on for {} s (--stall-timeout); waiting is {}{}", stallLimit_.count(),
                           (due != mine.end() ? *due : mine.front())->waiting(),
                           due != mine.end() ? "" : ", which is another thread's"));
}

}  // namespace weft::replay
