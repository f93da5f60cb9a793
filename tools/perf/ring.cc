// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>

#include "tools/perf/channels.h"
#include "tools/perf/ring_schedule.h"

namespace weft::perf {

namespace {

class Ring final : public Collective {
 public:
  Ring(RingKind kind, int rank, int size) : kind_(kind), rank_(rank), size_(size) {}

  Status connect(Wiring& wiring) {
    const auto shape = bufferShape(wiring, kind_ == RingKind::broadcast ? 1 : 2);
    slotBytes_ = shape.slotBytes;
    TRY(next_, sendTo(wiring, (rank_ + 1) % size_, shape));
    TRY(previous_, receiveFrom(wiring, (rank_ + size_ - 1) % size_, shape));
    return {};
  }

  void start(const Work& work) override {
    work_ = work;
    schedule_ = RingSchedule(shape());
    previous_->expect(schedule_.receives());
  }

  Status progress(bool* moved) override {
    while (runSlice()) *moved = true;
    TRY(next_->progress(moved));
    return previous_->progress(moved);
  }

  bool done() const override { return schedule_.finished() && next_->idle() && previous_->idle(); }
  uint64_t messages() const override { return next_->messages() + previous_->messages(); }

 private:
  RingShape shape() const {
    RingShape s;
    s.kind = kind_;
    s.rank = rank_;
    s.size = size_;
    s.root = work_.root;
    s.count = work_.count;
    s.stride = work_.stride;
    s.slice = slotBytes_ / kAlignBytes * kAlignBytes / work_.type->bytes;
    s.align = std::max<size_t>(1, kAlignBytes / work_.type->bytes);
    return s;
  }

  // False when a connection is not ready for the next slice.
  bool runSlice() {
    if (schedule_.finished()) return false;
    const RingStep step = schedule_.step();
    std::byte* slot = step.sends ? next_->freeSlot() : nullptr;
    if ((step.sends && slot == nullptr) || (step.receives && !previous_->ready())) return false;
    const size_t bytes = schedule_.length() * work_.type->bytes;
    combine(step, bytes, slot);
    if (step.sends) next_->commit(bytes);
    if (step.receives) previous_->release();
    schedule_.advance();
    return true;
  }

  void combine(const RingStep& step, size_t bytes, std::byte* slot) {
    if (bytes == 0) return;
    const std::byte* input = work_.input + schedule_.inputOffset() * work_.type->bytes;
    std::byte* output = work_.output + schedule_.outputOffset() * work_.type->bytes;
    // A message that is shorter than it should be leaves old bytes in its slot, which then count as wrong.
    const std::byte* arrived = step.receives ? previous_->message().data() : input;
    std::byte* first = step.stores ? output : slot;
    if (step.reduces) {
      work_.type->reduce(work_.op, first, arrived, input, bytes / work_.type->bytes);
    } else if (first != arrived) {
      std::memcpy(first, arrived, bytes);
    }
    if (step.stores && step.sends) std::memcpy(slot, first, bytes);
  }

  RingKind kind_;
  int rank_;
  int size_;
  size_t slotBytes_ = 0;
  std::unique_ptr<netdriver::SendChannel> next_;
  std::unique_ptr<netdriver::RecvChannel> previous_;
  Work work_;
  RingSchedule schedule_;
};

Result<std::unique_ptr<Collective>> makeRing(RingKind kind, Wiring& wiring) {
  if (wiring.size == 1) return std::make_unique<CopyAlone>();
  auto ring = std::make_unique<Ring>(kind, wiring.rank, wiring.size);
  TRY(ring->connect(wiring));
  return ring;
}

}  // namespace

Result<std::unique_ptr<Collective>> makeRingAllReduce(Wiring wiring) {
  return makeRing(RingKind::allReduce, wiring);
}

Result<std::unique_ptr<Collective>> makeRingAllGather(Wiring wiring) {
  return makeRing(RingKind::allGather, wiring);
}

Result<std::unique_ptr<Collective>> makeRingReduceScatter(Wiring wiring) {
  return makeRing(RingKind::reduceScatter, wiring);
}

Result<std::unique_ptr<Collective>> makeRingBroadcast(Wiring wiring) {
  return makeRing(RingKind::broadcast, wiring);
}

}  // namespace weft::perf
