// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/completion_queue.h"

#include <bit>
#include <cerrno>
#include <utility>

#include "tests/softefa/event_channel.h"
#include "tests/softefa/strict.h"

namespace softefa {

CompletionQueue::CompletionQueue(uint32_t depth, EventChannel* channel, unsigned strict, unsigned batch,
                                 Counters& counters)
    : depth_(std::bit_ceil(depth)), channel_(channel), strict_(strict), batch_(batch), counters_(counters) {}

void CompletionQueue::push(Completion completion) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= depth_) {
    ++counters_.completionsOverrun;
    violation(strict_, kStrictCq,
              "a completion queue of %u entries is full; the completion of qp %u, wr_id 0x%llx is lost",
              depth_, completion.qpn, static_cast<unsigned long long>(completion.wrId));
    return;
  }
  if (batch_ > 1 && entries_.size() == shown_) first_ = std::chrono::steady_clock::now();
  entries_.push_back(std::move(completion));
  if (!std::exchange(armed_, false)) return;
  if (channel_) channel_->notify(cq_);
}

int CompletionQueue::take(Completion& completion) {
  const std::lock_guard lock(mutex_);
  if (entries_.empty()) return ENOENT;
  if (batch_ > 1) {
    const bool late = std::chrono::steady_clock::now() - first_ >= std::chrono::milliseconds(1);
    if (shown_ == 0 && (late || entries_.size() >= batch_)) shown_ = entries_.size();
    if (shown_ == 0) return ENOENT;
    shown_--;
  }
  completion = std::move(entries_.front());
  entries_.pop_front();
  QueuePairLife& life = *completion.life;
  if (!completion.unsolicited) --(completion.ofSend ? life.sends : life.receives);
  return life.destroyed ? EINVAL : 0;
}

void CompletionQueue::arm() {
  const std::lock_guard lock(mutex_);
  armed_ = true;
}

}  // namespace softefa
