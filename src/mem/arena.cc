// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/arena.h"

#include <algorithm>

#include "src/base/pages.h"
#include "src/base/reserve.h"

// The arena: first a free piece of the same size, then the rest of the last chunk, then a new chunk.
namespace weft::mem {

namespace {

// Two cache lines, so that blocks never share one with their neighbours, the adjacent-line prefetcher
// included.
constexpr size_t kAlign = 128;
constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kFirstPieces = 16;  // of a size: more than a process with few connections has

size_t alignUp(size_t n, size_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

struct Arena::Chunk {
  std::shared_ptr<std::byte[]> data;
  size_t bytes = 0;
  size_t used = 0;   // bytes handed out from the front
  RegionRef region;  // goes before the memory
};

Block& Block::operator=(Block&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(region_, other.region_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Block::~Block() {
  const MustNotFail closing;
  if (data_) arena_->giveBack(std::move(region_), data_, bytes_);
}

Arena::Arena(RegionCache* cache) : cache_(cache) {}

Arena::~Arena() = default;

// Two threads that lack room at the same time register a chunk each; the later one serves the next pieces.
Result<Block> Arena::take(size_t wanted) {
  const size_t bytes = alignUp(std::max<size_t>(wanted, 1), kAlign);
  {
    std::lock_guard lock(mutex_);
    if (Block block = takeFree(bytes)) return block;
    if (Block block = cut(bytes)) return block;
  }
  TRY(auto chunk, makeChunk(bytes));
  std::lock_guard lock(mutex_);
  chunks_.push_back(std::move(chunk));
  return cut(bytes);
}

Block Arena::takeFree(size_t bytes) {
  std::vector<FreePiece>& free = sizeOf(bytes).free;
  if (free.empty()) return {};
  FreePiece piece = std::move(free.back());
  free.pop_back();
  return Block(this, std::move(piece.region), piece.data, bytes);
}

Block Arena::cut(size_t bytes) {
  if (chunks_.empty() || chunks_.back()->bytes - chunks_.back()->used < bytes) return {};
  Size& size = sizeOf(bytes);
  if (size.pieces == size.free.capacity()) size.free.reserve(std::max(kFirstPieces, 2 * size.pieces));
  size.pieces++;
  Chunk& chunk = *chunks_.back();
  auto* data = chunk.data.get() + chunk.used;
  chunk.used += bytes;
  return {this, chunk.region, data, bytes};
}

void Arena::giveBack(RegionRef region, std::byte* data, size_t bytes) {
  std::lock_guard lock(mutex_);
  sizeOf(bytes).free.push_back({std::move(region), data});
}

Arena::Size& Arena::sizeOf(size_t bytes) {
  for (Size& size : sizes_)
    if (size.bytes == bytes) return size;
  return sizes_.emplace_back(Size{.bytes = bytes});
}

size_t Arena::registeredBytes() {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& chunk : chunks_) bytes += chunk->bytes;
  return bytes;
}

Result<std::unique_ptr<Arena::Chunk>> Arena::makeChunk(size_t atLeast) const {
  auto chunk = std::make_unique<Chunk>();
  chunk->bytes = alignUp(std::max(atLeast, kChunkBytes), pageBytes());
  TRY(chunk->data, mapPages(chunk->bytes));
  MemoryDesc desc;
  desc.address = chunk->data.get();
  desc.ours = true;
  // The protocol's own memory needs the order of a card's writes (transport.h).
  desc.length = chunk->bytes;
  desc.strictOrder = true;
  desc.peers = PeerAccess::write;
  TRY(chunk->region, cache_->get(desc));
  return chunk;
}

}  // namespace weft::mem
