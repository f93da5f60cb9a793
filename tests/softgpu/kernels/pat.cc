// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>
#include <functional>

#include "tests/softgpu/kernels/fault.h"
#include "tests/softgpu/kernels/lane.h"
#include "tests/softgpu/kernels/pat_plan.h"
#include "tests/softgpu/kernels/work.h"

namespace softgpu {

namespace {

// The lanes of one dimension, and steps of them: several blocks behind each other in one slot.
class Dimension {
 public:
  using At = std::function<char*(int block)>;
  using Take = std::function<void(int block, const char* from)>;

  Dimension(Block& block, int sendTo, int receiveFrom)
      : block_(block),
        send_(openLane(block, sendTo, false, 0, 1)),
        receive_(openLane(block, receiveFrom, true, 0, 1)) {}

  void send(const std::vector<int>& blocks, size_t bytes, const At& at) {
    if (waitUntil(block_, [&] { return readShared(send_.head) + kSteps >= send_.step + 1; })) {
      char* to = send_.slot();
      for (const int block : blocks) to = std::copy_n(at(block), bytes, to);
      if (send_.fifo != nullptr) writeShared(&send_.size(), static_cast<int64_t>(blocks.size() * bytes));
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    writeShared(send_.tail, ++send_.step);
  }

  void receive(const std::vector<int>& blocks, size_t bytes, const Take& take) {
    if (waitUntil(block_, [&] { return readShared(receive_.tail) >= receive_.step + 1; })) {
      beSlow(block_);
      const char* from = receive_.slot();
      for (const int block : blocks) {
        take(block, from);
        from += bytes;
      }
    }
    writeShared(receive_.head, ++receive_.step);
  }

  void finish() const {
    for (const Lane* lane : {&send_, &receive_})
      field<uint64_t>(lane->connection, block_.layout().step) = lane->step;
  }

 private:
  Block& block_;
  Lane send_, receive_;
};

class Pat {
 public:
  // `towards`: 1, data goes to ranks with higher numbers; -1, to lower ones.
  Pat(const Play& play, int towards)
      : play_(play),
        plan_(play.block.ranks(), static_cast<size_t>(play.work.chunk) * play.reduction.size(),
              static_cast<size_t>(play.work.partCount) * play.reduction.size()) {
    for (int d = 0; d < plan_.dimensions(); ++d)
      dimensions_.emplace_back(play.block, rankAt(towards * (1 << d)), rankAt(-towards * (1 << d)));
  }

  const PatPlan& plan() const { return plan_; }
  Dimension& dimension(int d) { return dimensions_[static_cast<size_t>(d)]; }
  int rankAt(int distance) const {
    const int ranks = play_.block.ranks();
    return ((play_.block.rank() + distance) % ranks + ranks) % ranks;
  }
  void finish() const {
    for (const Dimension& one : dimensions_) one.finish();
  }

 private:
  const Play& play_;
  const PatPlan plan_;
  std::vector<Dimension> dimensions_;
};

// Calls `step` with offset and count of each chunk of this channel's part.
void eachChunk(const Play& play, const std::function<void(ptrdiff_t, ptrdiff_t)>& step) {
  for (ptrdiff_t done = 0; done < play.work.partCount; done += play.work.chunk)
    step(play.work.offset + done, std::min(play.work.chunk, play.work.partCount - done));
}

// From the furthest dimension to the nearest: what a rank passes on came by a dimension further.
void allGather(const Play& play) {
  Pat pat(play, -1);
  eachChunk(play, [&](ptrdiff_t data, ptrdiff_t count) {
    const size_t bytes = static_cast<size_t>(count) * play.reduction.size();
    const auto at = [&](int block) { return play.out(pat.rankAt(block) * play.work.count + data); };
    if (at(0) != play.in(data)) std::memmove(at(0), play.in(data), bytes);
    for (int d = pat.plan().dimensions() - 1; d >= 0; --d) {
      for (const auto& blocks : pat.plan().steps(d, false)) {
        pat.dimension(d).send(blocks, bytes, [&](int block) { return at(block - (1 << d)); });
        pat.dimension(d).receive(blocks, bytes,
                                 [&](int block, const char* from) { std::memcpy(at(block), from, bytes); });
      }
    }
  });
  pat.finish();
}

// From the nearest to the furthest: a block is complete when all nearer dimensions have added to it.
void reduceScatter(const Play& play) {
  Pat pat(play, 1);
  std::vector<std::vector<char>> sums(static_cast<size_t>(play.block.ranks()));
  eachChunk(play, [&](ptrdiff_t data, ptrdiff_t count) {
    const size_t bytes = static_cast<size_t>(count) * play.reduction.size();
    for (size_t block = 0; block < sums.size(); ++block) {
      const char* const own = play.in(pat.rankAt(static_cast<int>(block)) * play.work.count + data);
      sums[block].assign(own, own + bytes);
    }
    const auto at = [&](int block) { return sums[static_cast<size_t>(block)].data(); };
    for (int d = 0; d < pat.plan().dimensions(); ++d) {
      for (const auto& blocks : pat.plan().steps(d, true)) {
        pat.dimension(d).send(blocks, bytes, at);
        pat.dimension(d).receive(blocks, bytes, [&](int block, const char* from) {
          char* const sum = at(block - (1 << d));
          play.reduction.reduce(sum, sum, from, static_cast<size_t>(count));
        });
      }
    }
    std::memcpy(play.out(data), at(0), bytes);
  });
  pat.finish();
}

}  // namespace

void playPat(const Play& play, const DeviceFunction& function) {
  if (function.collective == "AllGather") {
    allGather(play);
  } else {
    reduceScatter(play);
  }
}

}  // namespace softgpu
