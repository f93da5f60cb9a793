// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "src/mem/region.h"

// Memory of our own that peers write into: rings, eager pools, credit lines. Carved from large registered
// chunks so that a connection costs no registration. Blocks come zeroed the first time and as they were left
// afterwards.
namespace weft::mem {

class Arena;

// A piece of a chunk; goes back to its arena when destroyed, so it must not outlive it.
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
  const RegionRef& region() const { return region_; }
  uint64_t offset() const { return region_->offsetOf(data_); }  // in the region, for peers
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Arena* arena_ = nullptr;
  RegionRef region_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Thread-safe.
class Arena {
 public:
  explicit Arena(RegionCache* cache);
  ~Arena();

  Result<Block> take(size_t bytes);  // 128-byte aligned; resources error when memory or memlock runs out
  size_t registeredBytes();          // for tests: of all chunks, whether taken or free
  void giveBack(RegionRef region, std::byte* data, size_t bytes);  // what ~Block calls

 private:
  struct Chunk;
  struct FreePiece {
    size_t bytes;
    RegionRef region;
    std::byte* data;
  };

  Status addChunk(size_t atLeast);

  RegionCache* cache_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<FreePiece> free_;
};

}  // namespace weft::mem
