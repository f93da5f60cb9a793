// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/heap.h"

#include <algorithm>
#include <bit>

#include "src/base/pages.h"
#include "src/base/reserve.h"

// A buddy allocator: free blocks are powers of two of a unit, each at a multiple of its size, and two of a
// size that are halves of one of the next join. The part of a block that its piece does not need is free
// again.
namespace weft::mem {

namespace {

constexpr size_t kUnit = 256;
constexpr unsigned kOrders = 15;  // of blocks: 1 unit to a whole chunk
constexpr size_t kUnits = size_t{1} << (kOrders - 1);
constexpr size_t kHeapChunk = kUnit * kUnits;

}  // namespace

// A piece of more than kHeapChunk has a chunk of its own, which has no blocks.
class HeapChunk {
 public:
  HeapChunk(std::shared_ptr<std::byte[]> data, size_t bytes, RegionRef region)
      : data_(std::move(data)), bytes_(bytes), region_(std::move(region)) {
    size_t words = 0;
    for (unsigned order = 0; order < kOrders; order++) {
      words_[order] = words;
      words += wordsOf(order);
    }
    if (isWhole()) return;
    free_.resize(words);
    join(0, kOrders - 1);
  }

  size_t bytes() const { return bytes_; }
  const RegionRef& region() const { return region_; }
  bool isWhole() const { return bytes_ != kHeapChunk; }  // one piece
  bool empty() const { return !isWhole() && used_ == 0; }
  bool takeTouched() { return std::exchange(touched_, !empty()); }

  // The first unit of a block of so many; -1: there is none.
  int64_t takeUnits(size_t units) {
    const unsigned wanted = static_cast<unsigned>(std::bit_width(units - 1));
    const uint32_t fitting = orders_ >> wanted << wanted;
    if (fitting == 0) return -1;
    const auto order = static_cast<unsigned>(std::countr_zero(fitting));
    const size_t first = findFree(order) << order;
    clear(first, order);
    used_ += size_t{1} << order;
    giveUnits(first + units, (size_t{1} << order) - units);
    touched_ = true;
    return static_cast<int64_t>(first);
  }

  void giveUnits(size_t first, size_t units) {
    used_ -= units;
    while (units > 0) {
      const size_t aligned = first == 0 ? kUnits : first & -first;
      const size_t block = std::min(aligned, std::bit_floor(units));
      join(first, static_cast<unsigned>(std::countr_zero(block)));
      first += block;
      units -= block;
    }
  }

  std::byte* at(size_t unit) const { return data_.get() + unit * kUnit; }
  size_t unitOf(const std::byte* data) const { return static_cast<size_t>(data - data_.get()) / kUnit; }

 private:
  static size_t wordsOf(unsigned order) { return std::max<size_t>((kUnits >> order) / 64, 1); }
  uint64_t& wordOf(size_t first, unsigned order) { return free_[words_[order] + (first >> order) / 64]; }
  static uint64_t bitOf(size_t first, unsigned order) { return uint64_t{1} << ((first >> order) % 64); }
  bool isFree(size_t first, unsigned order) { return (wordOf(first, order) & bitOf(first, order)) != 0; }

  // There is one.
  size_t findFree(unsigned order) const {
    size_t word = words_[order];
    while (free_[word] == 0) word++;
    return (word - words_[order]) * 64 + static_cast<size_t>(std::countr_zero(free_[word]));
  }

  void clear(size_t first, unsigned order) {
    wordOf(first, order) &= ~bitOf(first, order);
    if (--counts_[order] == 0) orders_ &= ~(uint32_t{1} << order);
  }

  void join(size_t first, unsigned order) {
    while (order + 1 < kOrders && isFree(first ^ size_t{1} << order, order)) {
      clear(first ^ size_t{1} << order, order);
      first &= ~(size_t{1} << order);
      order++;
    }
    wordOf(first, order) |= bitOf(first, order);
    counts_[order]++;
    orders_ |= uint32_t{1} << order;
  }

  const std::shared_ptr<std::byte[]> data_;
  const size_t bytes_;
  const RegionRef region_;             // goes before the memory
  std::array<size_t, kOrders> words_;  // where the bits of each order begin
  std::vector<uint64_t> free_;         // a bit for each block of each order
  std::array<uint32_t, kOrders> counts_{};
  uint32_t orders_ = 0;  // a bit for each that has a free block
  size_t used_ = 0;      // units
  bool touched_ = true;  // since somebody looked
};

Piece& Piece::operator=(Piece&& other) noexcept {
  std::swap(heap_, other.heap_);
  std::swap(chunk_, other.chunk_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Piece::~Piece() {
  if (data_) heap_->giveBack(chunk_, data_, bytes_);
}

const RegionRef& Piece::region() const {
  return chunk_->region();
}

Heap::Heap(RegionCache* cache, std::atomic<int64_t>* room) : cache_(cache), room_(room) {}

Heap::~Heap() {
  count(-static_cast<int64_t>(mapped_));
}

Result<Piece> Heap::take(size_t wanted) {
  const size_t units = (std::max<size_t>(wanted, 1) + kUnit - 1) / kUnit;
  if (units <= kUnits) {
    for (const auto& chunk : chunks_)
      if (const int64_t first = chunk->takeUnits(units); first >= 0)
        return Piece(this, chunk.get(), chunk->at(static_cast<size_t>(first)), units * kUnit);
  }
  TRY(HeapChunk * fresh, makeChunk(std::max(units * kUnit, kHeapChunk)));
  if (units <= kUnits) (void)fresh->takeUnits(units);
  return Piece(this, fresh, fresh->at(0), units * kUnit);
}

void Heap::giveBack(HeapChunk* chunk, const std::byte* data, size_t bytes) {
  if (chunk->isWhole()) return drop(chunk);
  chunk->giveUnits(chunk->unitOf(data), bytes / kUnit);
  const bool keeps = room_ && room_->load(std::memory_order_relaxed) >= 0;
  if (chunk->empty() && !keeps) drop(chunk);
}

// No more than one at a time: who calls is inside an engine.
void Heap::tidy() {
  const HeapChunk* idle = nullptr;
  for (const auto& chunk : chunks_)
    if (!chunk->takeTouched()) idle = chunk.get();
  if (idle) drop(idle);
}

// A message is coming, and has no other place: its fabric has read the beginning of it.
Result<HeapChunk*> Heap::makeChunk(size_t bytes) {
  const MustNotFail nobodyToTell;
  TRY(auto data, mapPages(bytes));
  MemoryDesc desc;
  desc.address = data.get();
  desc.ours = true;
  desc.length = (bytes + pageBytes() - 1) / pageBytes() * pageBytes();
  desc.strictOrder = true;  // as the arena's
  desc.peers = PeerAccess::write;
  TRY(auto region, cache_->get(desc));
  chunks_.push_back(std::make_unique<HeapChunk>(std::move(data), bytes, std::move(region)));
  count(static_cast<int64_t>(bytes));
  return chunks_.back().get();
}

void Heap::drop(const HeapChunk* chunk) {
  const MustNotFail closing;
  count(-static_cast<int64_t>(chunk->bytes()));
  std::erase_if(chunks_, [&](const auto& of) { return of.get() == chunk; });
}

void Heap::count(int64_t bytes) {
  mapped_ = static_cast<size_t>(static_cast<int64_t>(mapped_) + bytes);
  if (room_) room_->fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace weft::mem
