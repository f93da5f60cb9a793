// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <memory>

// When it closes an endpoint, the EFA provider of libfabric 1.17 frees its inner endpoint (656 bytes), then
// reads a pointer from the freed block, and frees that pointer as well. glibc leaves a freed block unchanged
// if the block goes into the cache of its thread, which holds 7 blocks of a size. A block that finds no room
// there may be given to another thread or to the kernel in between, and then the process dies. While an
// object of this class lives, this thread's cache has room: the object holds the blocks that filled it.
namespace weft::ofi {

class RoomForFreed {
 public:
  RoomForFreed();
  ~RoomForFreed();
  RoomForFreed(const RoomForFreed&) = delete;
  RoomForFreed& operator=(const RoomForFreed&) = delete;

 private:
  static constexpr size_t kBlocks = 7;  // TCACHE_FILL_COUNT of glibc's malloc.c
  // A block that was cut from a larger one with 16 bytes left over has those bytes too.
  static constexpr std::array<size_t, 2> kBytes = {656, 672};
  std::array<std::unique_ptr<std::byte[]>, kBlocks * kBytes.size()> taken_;
};

}  // namespace weft::ofi
