// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/mem/region.h"

// Memory of our own for pieces of any size, each for a short time: bytes that come before anybody wants them.
// Pieces are cut from registered chunks, and join with their neighbours when they are given back, so that one
// chunk serves all sizes. An arena's pieces keep their size for ever, which suits what few sizes are asked
// of. A chunk that is empty stays for the next pieces while the heaps of the process keep no more than they
// may, and goes when nobody has used it for a while (tidy). The engine owns the heap; used only by who has
// entered that.
namespace weft::mem {

class Heap;
class HeapChunk;

// A piece of a chunk. Its destructor gives it back, so it must not outlive the heap.
class Piece {
 public:
  Piece() = default;
  Piece(Heap* heap, HeapChunk* chunk, std::byte* data, size_t bytes)
      : heap_(heap), chunk_(chunk), data_(data), bytes_(bytes) {}
  Piece(Piece&& other) noexcept { *this = std::move(other); }
  Piece& operator=(Piece&& other) noexcept;
  ~Piece();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  const RegionRef& region() const;                               // of the whole chunk
  uint64_t offset() const { return region()->offsetOf(data_); }  // in the region
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Heap* heap_ = nullptr;
  HeapChunk* chunk_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

class Heap {
 public:
  // `room`: bytes that all heaps of the process may still map, below zero where they have mapped more than
  // they may keep. Null: an empty chunk goes at once. It outlives the heap.
  Heap(RegionCache* cache, std::atomic<int64_t>* room);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Result<Piece> take(size_t bytes);  // 256-byte aligned; resources error when memory or memlock runs out
  void tidy();                       // now and then: a chunk that was empty since the last time goes
  size_t mappedBytes() const { return mapped_; }
  void giveBack(HeapChunk* chunk, const std::byte* data, size_t bytes);  // what ~Piece calls

 private:
  Result<HeapChunk*> makeChunk(size_t bytes);
  void drop(const HeapChunk* chunk);
  void count(int64_t bytes);

  RegionCache* cache_;
  std::atomic<int64_t>* room_;
  size_t mapped_ = 0;
  std::vector<std::unique_ptr<HeapChunk>>
      chunks_;  // the first ones are used first, so that the last go empty
};

}  // namespace weft::mem
