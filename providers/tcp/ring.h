// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <vector>

// First in, first out. Allocates only when it holds more than ever before. One thread.
namespace weft::tcp {

template <class T>
class Ring {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  T& front() { return items_[first_]; }
  T& back() { return (*this)[count_ - 1]; }
  T& operator[](size_t i) { return items_[(first_ + i) & (items_.size() - 1)]; }
  const T& operator[](size_t i) const { return items_[(first_ + i) & (items_.size() - 1)]; }

  T& push(const T& item) {
    if (count_ == items_.size()) [[unlikely]]
      grow();
    T& place = (*this)[count_++];
    place = item;
    return place;
  }
  void pop() {
    first_ = (first_ + 1) & (items_.size() - 1);
    count_--;
  }
  void clear() { first_ = count_ = 0; }

  // Keeps those that `keep` holds for, in their order.
  template <class Keep>
  void keepIf(Keep keep) {
    size_t kept = 0;
    for (size_t i = 0; i < count_; i++) {
      if (!keep((*this)[i])) continue;
      if (kept != i) (*this)[kept] = (*this)[i];
      kept++;
    }
    count_ = kept;
  }

 private:
  static constexpr size_t kFirst = 16;
  [[gnu::noinline]] void grow() {
    std::vector<T> larger(items_.empty() ? kFirst : 2 * items_.size());
    for (size_t i = 0; i < count_; i++) larger[i] = (*this)[i];
    items_.swap(larger);
    first_ = 0;
  }

  std::vector<T> items_;  // a power of two of them, or none
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace weft::tcp
