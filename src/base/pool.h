// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

// Objects in chunks that never move or shrink; taking and giving are a pop and a push. Each item knows its
// number, `index`, by which it is found again. The pool allocates only when more items are out than ever
// before. Items keep their contents between uses (generations live in them). Used by one thread.
namespace weft {

template <class T, uint32_t kChunk = 64>
class Pool {
 public:
  explicit Pool(uint32_t limit) : limit_(limit) {}

  // Null when `limit` items are out.
  T* take() {
    if (freeCount_ == 0 && !grow()) [[unlikely]]
      return nullptr;
    return free_[--freeCount_];
  }
  void give(T* item) { free_[freeCount_++] = item; }  // grow() has made room for all items

  T& operator[](uint32_t index) { return chunks_[index / kChunk][index % kChunk]; }
  bool contains(uint32_t index) const { return index < size_; }
  uint32_t size() const { return size_; }
  uint32_t taken() const { return size_ - freeCount_; }

 private:
  [[gnu::noinline]] bool grow() {
    if (size_ + kChunk > limit_) return false;
    // First: if memory ends here, a chunk that is not counted would shift all numbers.
    free_.resize(size_ + kChunk);
    chunks_.push_back(std::make_unique<T[]>(kChunk));
    for (uint32_t i = kChunk; i-- > 0;) {
      T* item = &chunks_.back()[i];
      item->index = size_ + i;
      free_[freeCount_++] = item;
    }
    size_ += kChunk;
    return true;
  }

  uint32_t limit_;
  uint32_t size_ = 0;
  uint32_t freeCount_ = 0;
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::vector<T*> free_;  // the first freeCount_ items are free
};

}  // namespace weft
