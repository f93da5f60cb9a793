// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>

// The order in which a rank does its part of a ring collective: round after round, step after step, slice
// after slice. A plain value, so that it can be walked ahead to count messages. Lengths in elements.
namespace weft::perf {

enum class RingKind : uint8_t { allReduce, allGather, reduceScatter, broadcast };

// The events of one slice: which of the two connections take part, and whether data meets data.
struct RingStep {
  bool receives = false;
  bool sends = false;
  bool reduces = false;  // what arrives is reduced with our input
  bool stores = false;   // the result belongs into our output
  int block = 0;         // which chunk of the round, or which rank's part
};

struct RingShape {
  RingKind kind = RingKind::allReduce;
  int rank = 0;
  int size = 2;
  int root = 0;
  size_t count = 0;   // of the whole, or of each part
  size_t stride = 0;  // from part to part, of those collectives that have parts
  size_t slice = 1;   // as much as fits into one message
  size_t align = 1;   // chunks end at multiples of this where they can
};

class RingSchedule {
 public:
  RingSchedule() = default;  // finished
  explicit RingSchedule(const RingShape& shape) : shape_(shape) { beginRound(); }

  bool finished() const { return finished_; }
  RingStep step() const;
  // Of the slice, in what is sent and received; from the beginning of the input and of the output.
  size_t length() const;
  size_t inputOffset() const;
  size_t outputOffset() const;
  // Messages that this rank still receives.
  uint64_t receives() const;
  void advance();

 private:
  int steps() const;
  void beginRound();
  size_t chunkBegin() const;
  size_t chunkEnd() const;

  RingShape shape_;
  size_t roundBegin_ = 0;
  size_t chunk_ = 0;
  int index_ = 0;
  size_t sliceIndex_ = 0;
  bool started_ = false;
  bool finished_ = true;
};

}  // namespace weft::perf
