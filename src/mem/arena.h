// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "src/mem/region.h"

// Memory of our own that peers write into: rings, eager pools, credit records. An arena carves blocks from
// large registered chunks, so that a connection costs no registration. A block holds zeros the first time it
// is taken, and what its last user left in it afterwards.
// The engine owns the arena. Chunks are never given back before the arena ends.
namespace weft::mem {

class Arena;

// A piece of a chunk. Its destructor gives it back to the arena, so a block must not outlive the arena.
class Block {
 public:
  Block() = default;
  Block(Arena* arena, RegionRef region, std::byte* data, size_t bytes)
      : arena_(arena), region_(std::move(region)), data_(data), bytes_(bytes) {}
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;
  ~Block();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // The region of the whole chunk. Other blocks share it.
  const RegionRef& region() const { return region_; }
  uint64_t offset() const { return region_->offsetOf(data_); }  // in the region; peers name a block by it
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Arena* arena_ = nullptr;
  RegionRef region_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// All blocks of one device. Thread-safe: one mutex guards the chunks and the free pieces. It is held for
// moments alone, and not while a chunk is registered.
class Arena {
 public:
  explicit Arena(RegionCache* cache);
  ~Arena();

  Result<Block> take(size_t bytes);  // 128-byte aligned; resources error when memory or memlock runs out
  size_t registeredBytes();          // for tests: of all chunks, whether taken or free
  // Called by ~Block alone. The piece is found again by the next take() of exactly this size.
  void giveBack(RegionRef region, std::byte* data, size_t bytes);  // what ~Block calls

 private:
  struct Chunk;
  // A piece that was taken once and given back. Pieces are never merged or cut: connections ask for few
  // sizes.
  struct FreePiece {
    RegionRef region;
    std::byte* data;
  };
  struct Size {
    size_t bytes = 0;
    size_t pieces = 0;            // that were cut so far, taken or free
    std::vector<FreePiece> free;  // has room for all of them: giving one back allocates nothing
  };

  // The next three with the mutex held. An empty block: there is no free piece, or no room in the last chunk.
  Size& sizeOf(size_t bytes);
  Block takeFree(size_t bytes);
  Block cut(size_t bytes);
  Result<std::unique_ptr<Chunk>> makeChunk(size_t atLeast) const;  // without it
  RegionCache* cache_;                                             // outlives the arena
  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // the last one is the one that pieces are cut from
  std::vector<Size> sizes_;                     // some dozens
};

}  // namespace weft::mem
