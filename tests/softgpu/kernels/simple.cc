// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>

#include "tests/softgpu/kernels/fault.h"
#include "tests/softgpu/kernels/lane.h"

namespace softgpu {

namespace {

constexpr int kDirectNic = 4;  // flag of a connection whose network reads and writes users' buffers

class Simple : public Primitive {
 public:
  Simple(Block& block, const Reduction& reduction, const Ends& ends)
      : block_(block), reduction_(reduction), ends_(ends) {
    for (const int peer : ends.receiveFrom) receives_.push_back(open(peer, true));
    for (const int peer : ends.sendTo) sends_.push_back(open(peer, false));
    for (auto& lane : receives_) {
      // Rounding a step up leaves some unused: the sender may have their place.
      writeShared(lane.head, lane.step);
      if (lane.userBuffers && lane.fifo != nullptr) writeShared(&lane.size(), int64_t{0});
    }
    const int bytes =
        ends.stepBytes != 0 ? ends.stepBytes : block.bufferSize(kSimple) / static_cast<int>(kSteps);
    stepElements_ = bytes / static_cast<ptrdiff_t>(reduction.size());
  }

  void run(const Operation& operation) override {
    const ptrdiff_t count = std::max<ptrdiff_t>(operation.count, 0);
    const ptrdiff_t perChunk = ends_.slicesPerChunk;
    const ptrdiff_t most = stepElements_ * ends_.stepsPerSlice;
    ptrdiff_t slice = std::max((count + 16 * perChunk - 1) / (16 * perChunk) * 16, most / 32);
    ptrdiff_t done = 0;
    // Slices without elements are waited for and told as well.
    for (ptrdiff_t i = 0; i < perChunk; ++i) {
      slice = std::min(slice, count - done);
      runSlice(operation, done, slice);
      done += slice;
    }
  }

  void finish() override {
    for (auto* lanes : {&receives_, &sends_}) {
      for (auto& lane : *lanes) field<uint64_t>(lane.connection, block_.layout().step) = lane.step;
    }
    for (auto& lane : sends_) {
      if (!lane.userBuffers || lane.fifo == nullptr) continue;
      // The user may reuse the buffer when the network has read it.
      const uint64_t last = lane.step - static_cast<uint64_t>(ends_.stepsPerSlice);
      const auto* const size = reinterpret_cast<int64_t*>(lane.fifo + (last % kSteps) * kFifoEntrySize + 8);
      waitUntil(block_, [&] { return readShared(size) == -1; });
    }
  }

 private:
  Lane open(int peer, bool receive) const {
    const auto unit = static_cast<uint64_t>(ends_.slicesPerChunk * ends_.stepsPerSlice);
    Lane lane = openLane(block_, peer, receive, ends_.index, unit);
    lane.userBuffers =
        ends_.registered && (field<int>(lane.connection, block_.layout().flags) & kDirectNic) != 0;
    return lane;
  }

  void runSlice(const Operation& operation, ptrdiff_t offset, ptrdiff_t count) {
    const auto perSlice = static_cast<uint64_t>(ends_.stepsPerSlice);
    bool ready = true;
    if (operation.receive) {
      for (auto& lane : receives_)
        ready &= waitUntil(block_, [&] { return readShared(lane.tail) >= lane.step + perSlice; });
    }
    if (operation.send) {
      for (auto& lane : sends_) {
        ready &= waitUntil(block_, [&] { return readShared(lane.head) + kSteps >= lane.step + perSlice; });
        if (ready && lane.fifo != nullptr)
          writeShared(&lane.size(), static_cast<int64_t>(count) * static_cast<int64_t>(reduction_.size()));
      }
    }
    if (ready && count > 0) {
      beSlow(block_);
      move(operation, offset, static_cast<size_t>(count));
    }
    advance(operation, perSlice);
  }

  void advance(const Operation& operation, uint64_t perSlice) {
    if (operation.receive) {
      for (auto& lane : receives_) writeShared(lane.head, lane.step += perSlice);
    }
    if (operation.send) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      for (auto& lane : sends_) writeShared(lane.tail, lane.step += perSlice);
    }
  }

  // All places that the result goes to. Registered buffers are the network's business.
  std::vector<char*> targets(const Operation& operation, size_t at) const {
    std::vector<char*> list;
    if (operation.target != nullptr) list.push_back(operation.target + at);
    if (operation.send) {
      for (const auto& lane : sends_) {
        if (!lane.userBuffers) list.push_back(lane.slot());
      }
    }
    return list;
  }

  void move(const Operation& operation, ptrdiff_t offset, size_t count) {
    const size_t at = static_cast<size_t>(offset) * reduction_.size(), bytes = count * reduction_.size();
    const auto places = targets(operation, at);
    if (places.empty()) return;
    char* const result = places.front();
    const char* have = nullptr;
    if (operation.source != nullptr) {
      have = operation.source + at;
      if (operation.ownInput && reduction_.hasBefore()) {
        reduction_.before(result, have, count);
        have = result;
      }
    }
    if (operation.receive) {
      for (const auto& lane : receives_) {
        if (lane.userBuffers) continue;
        if (have == nullptr) {
          have = lane.slot();
        } else {
          reduction_.reduce(result, have, lane.slot(), count);
          have = result;
        }
      }
    }
    if (have == nullptr) return;
    if (have != result) std::memmove(result, have, bytes);
    if (operation.last && reduction_.hasAfter()) reduction_.after(result, count);
    for (size_t i = 1; i < places.size(); ++i) std::memmove(places[i], result, bytes);
  }

  Block& block_;
  const Reduction& reduction_;
  const Ends ends_;
  std::vector<Lane> receives_, sends_;
  ptrdiff_t stepElements_ = 0;
};

}  // namespace

std::unique_ptr<Primitive> makeSimple(Block& block, const Reduction& reduction, const Ends& ends) {
  return std::make_unique<Simple>(block, reduction, ends);
}

std::unique_ptr<Primitive> makePrimitive(int protocol, Block& block, const Reduction& reduction,
                                         const Ends& ends) {
  return protocol == kSimple ? makeSimple(block, reduction, ends) : makeLL(block, reduction, ends);
}

}  // namespace softgpu
