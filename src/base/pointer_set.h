// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// A set of pointers with open addressing. Inserting and erasing allocate nothing unless the set holds more
// than ever before, and cost the same whatever it holds. Without order. Used by one thread at a time.
namespace weft {

template <class T>
class PointerSet {
 public:
  bool contains(const T* pointer) const { return count_ > 0 && places_[find(pointer)] == pointer; }
  size_t size() const { return count_; }

  // For one more pointer, so that inserting it does not fail.
  void makeRoom() {
    if (2 * (count_ + 1) > places_.size()) grow();
  }

  void insert(T* pointer) {
    makeRoom();
    T*& place = places_[find(pointer)];
    if (place == nullptr) count_++;
    place = pointer;
  }

  // Closes the gap behind it, so that no search ends before the pointer that it looks for.
  void erase(const T* pointer) {
    if (!contains(pointer)) return;
    size_t gap = find(pointer);
    for (size_t i = next(gap); places_[i] != nullptr; i = next(i)) {
      const size_t home = homeOf(places_[i]);
      const bool reachesOver = gap <= i ? home <= gap || home > i : home <= gap && home > i;
      if (!reachesOver) continue;
      places_[gap] = places_[i];
      gap = i;
    }
    places_[gap] = nullptr;
    count_--;
  }

  class Iterator {
   public:
    Iterator(T* const* at, T* const* end) : at_(at), end_(end) { skip(); }
    T* operator*() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      skip();
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    void skip() {
      while (at_ != end_ && *at_ == nullptr) ++at_;
    }
    T* const* at_;
    T* const* end_;
  };
  Iterator begin() const { return {places_.data(), places_.data() + places_.size()}; }
  Iterator end() const { return {places_.data() + places_.size(), places_.data() + places_.size()}; }

 private:
  // A power of two of places, at most half of them taken. The highest bits of the product spread pointers
  // well that an allocator gave out at even distances.
  size_t homeOf(const T* pointer) const {
    const uint64_t hash = reinterpret_cast<uintptr_t>(pointer) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(hash >> (std::countl_zero(places_.size()) + 1));
  }
  size_t next(size_t place) const { return (place + 1) & (places_.size() - 1); }
  size_t find(const T* pointer) const {
    size_t place = homeOf(pointer);
    while (places_[place] != nullptr && places_[place] != pointer) place = next(place);
    return place;
  }

  void grow() {
    std::vector<T*> old(places_.empty() ? 8 : places_.size() * 2);
    old.swap(places_);
    for (T* pointer : old)
      if (pointer != nullptr) places_[find(pointer)] = pointer;
  }

  std::vector<T*> places_;
  size_t count_ = 0;
};

}  // namespace weft
