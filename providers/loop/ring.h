// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <vector>

// A bounded queue of many writers and one reader (D. Vyukov's sequence-numbered ring). Allocates only when
// made; push and pop never wait: a full ring refuses, an empty one says so. push from any thread, pop from
// the owner's.
namespace weft::loop {

template <class T>
class MpscRing {
 public:
  explicit MpscRing(size_t minCapacity) : mask_(std::bit_ceil(minCapacity) - 1), cells_(mask_ + 1) {
    for (size_t i = 0; i <= mask_; i++) cells_[i].sequence.store(i, std::memory_order_relaxed);
  }

  bool push(T value) {
    size_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      // acquire: the reader's move out of this cell happened before we fill it again
      const size_t sequence = cell.sequence.load(std::memory_order_acquire);
      if (sequence == at) {
        if (!tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
        cell.value = std::move(value);
        cell.sequence.store(at + 1, std::memory_order_release);  // publishes value
        return true;
      }
      if (sequence < at) return false;
      at = tail_.load(std::memory_order_relaxed);
    }
  }

  bool pop(T* out) {
    Cell& cell = cells_[head_ & mask_];
    if (cell.sequence.load(std::memory_order_acquire) != head_ + 1) return false;
    *out = std::move(cell.value);
    cell.value = T{};
    cell.sequence.store(head_ + mask_ + 1, std::memory_order_release);
    head_++;
    return true;
  }

  size_t capacity() const { return mask_ + 1; }

 private:
  struct Cell {
    std::atomic<size_t> sequence{0};
    T value{};
  };
  const size_t mask_;
  std::vector<Cell> cells_;
  alignas(64) std::atomic<size_t> tail_{0};
  alignas(64) size_t head_ = 0;
};

}  // namespace weft::loop
