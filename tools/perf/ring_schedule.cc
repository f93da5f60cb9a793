// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/ring_schedule.h"

#include <algorithm>

namespace weft::perf {

namespace {

constexpr size_t kSlicesPerChunk = 2;

size_t divideUp(size_t a, size_t b) {
  return (a + b - 1) / b;
}

}  // namespace

// In a round, every chunk goes once around the ring; all-reduce takes it around twice, less the last hop.
int RingSchedule::steps() const {
  switch (shape_.kind) {
    case RingKind::allReduce:
      return 2 * shape_.size - 1;
    case RingKind::broadcast:
      return 1;
    default:
      return shape_.size;
  }
}

RingStep RingSchedule::step() const {
  const int n = shape_.size;
  const int last = steps() - 1;
  RingStep s;
  if (shape_.kind == RingKind::broadcast) {
    s.receives = shape_.rank != shape_.root;
    s.sends = (shape_.rank + 1) % n != shape_.root;
    s.stores = true;
    return s;
  }
  const bool gathers = shape_.kind == RingKind::allGather;
  s.receives = index_ > 0;
  s.sends = index_ < last;
  s.reduces = !gathers && index_ > 0 && index_ < n;
  s.stores = gathers || index_ >= n - 1;
  // Each step works on the block that the rank before made in its last step. To gather, a rank begins with
  // its own; to reduce, with the one that comes back to it in step n - 1.
  const int first = gathers ? shape_.rank : shape_.rank - 1;
  s.block = ((first - index_) % n + 2 * n) % n;
  return s;
}

size_t RingSchedule::length() const {
  const size_t begin = chunkBegin() + sliceIndex_ * shape_.slice;
  return std::min(shape_.slice, chunkEnd() - std::min(chunkEnd(), begin));
}

size_t RingSchedule::inputOffset() const {
  const size_t part = shape_.kind == RingKind::reduceScatter ? static_cast<size_t>(step().block) : 0;
  return part * shape_.stride + chunkBegin() + sliceIndex_ * shape_.slice;
}

size_t RingSchedule::outputOffset() const {
  const size_t part = shape_.kind == RingKind::allGather ? static_cast<size_t>(step().block) : 0;
  return part * shape_.stride + chunkBegin() + sliceIndex_ * shape_.slice;
}

uint64_t RingSchedule::receives() const {
  uint64_t messages = 0;
  for (RingSchedule s = *this; !s.finished(); s.advance()) messages += s.step().receives ? 1 : 0;
  return messages;
}

void RingSchedule::advance() {
  ++sliceIndex_;
  if (sliceIndex_ < std::max<size_t>(1, divideUp(chunkEnd() - chunkBegin(), shape_.slice))) return;
  sliceIndex_ = 0;
  if (++index_ < steps()) return;
  roundBegin_ += shape_.kind == RingKind::allReduce ? chunk_ * static_cast<size_t>(shape_.size) : chunk_;
  beginRound();
}

void RingSchedule::beginRound() {
  index_ = 0;
  sliceIndex_ = 0;
  // An empty operation has one round of empty messages.
  finished_ = started_ && roundBegin_ >= shape_.count;
  started_ = true;
  const size_t left = shape_.count - std::min(shape_.count, roundBegin_);
  const size_t ways = shape_.kind == RingKind::allReduce ? static_cast<size_t>(shape_.size) : 1;
  const size_t fair = divideUp(divideUp(left, ways), shape_.align) * shape_.align;
  chunk_ = std::min(shape_.slice * kSlicesPerChunk, fair);
}

// All-reduce cuts the round into a chunk for every block; the others have a part for it, or only one block.
size_t RingSchedule::chunkBegin() const {
  const size_t before = shape_.kind == RingKind::allReduce ? chunk_ * static_cast<size_t>(step().block) : 0;
  return std::min(shape_.count, roundBegin_ + before);
}

size_t RingSchedule::chunkEnd() const {
  return std::min(shape_.count, chunkBegin() + chunk_);
}

}  // namespace weft::perf
