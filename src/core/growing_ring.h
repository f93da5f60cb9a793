// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/base/reserve.h"

// A queue that allocates only when it has to hold more than ever before, and whose front is contiguous so
// that a burst can be handed on in one call. One thread.
namespace weft::core {

template <class T>
class GrowingRing {
 public:
  explicit GrowingRing(size_t capacity = 16) : items_(capacity), mask_(capacity - 1) {}  // a power of two

  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  bool full() const { return size() > mask_; }  // the next push makes it larger
  T& front() { return items_[head_ & mask_]; }

  void push(const T& item) {
    if (full()) [[unlikely]]
      grow();
    items_[tail_++ & mask_] = item;
  }
  // One that is empty begins anew at its front: the next burst lies side by side.
  void pop(size_t n = 1) {
    head_ += n;
    if (head_ == tail_) head_ = tail_ = 0;
  }
  void clear() { head_ = tail_; }

  // Oldest first.
  template <class Visit>
  void each(Visit visit) {
    for (size_t i = head_; i != tail_; i++) visit(items_[i & mask_]);
  }

  // Drops the others; what is kept stays in order.
  template <class Wanted>
  void keepIf(Wanted wanted) {
    size_t kept = head_;
    for (size_t i = head_; i != tail_; i++) {
      if (wanted(items_[i & mask_])) items_[kept++ & mask_] = items_[i & mask_];
    }
    tail_ = kept;
  }

  // As many items from the front as lie side by side.
  std::span<T> run() {
    const size_t first = head_ & mask_;
    const size_t n = size() < items_.size() - first ? size() : items_.size() - first;
    return std::span<T>(items_).subspan(first, n);
  }

 private:
  // What it holds is under way, and a poll that may be another comm's goes on with it.
  [[gnu::noinline]] void grow() {
    const MustNotFail nobodyToTell;
    std::vector<T> larger(items_.size() * 2);
    const size_t n = size();
    for (size_t i = 0; i < n; i++) larger[i] = items_[(head_ + i) & mask_];
    items_.swap(larger);
    mask_ = items_.size() - 1;
    head_ = 0;
    tail_ = n;
  }

  std::vector<T> items_;
  size_t mask_;
  size_t head_ = 0, tail_ = 0;  // count until it is empty
};

}  // namespace weft::core
