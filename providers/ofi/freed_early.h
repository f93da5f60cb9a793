// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <memory>

// Closing an endpoint, the EFA provider of libfabric 1.17 frees its inner one (656 bytes) and then reads a
// pointer from it, which it frees as well. glibc leaves what was freed as it was, if it goes into the cache
// of its thread, which holds 7 blocks of a size; what finds no room there may be given to another thread, or
// back to the kernel, in between, and the process dies. While one of these lives, this thread's cache has
// room: the blocks that filled it are here.
namespace weft::ofi {

class RoomForFreed {
 public:
  RoomForFreed();
  ~RoomForFreed();
  RoomForFreed(const RoomForFreed&) = delete;
  RoomForFreed& operator=(const RoomForFreed&) = delete;

 private:
  static constexpr size_t kBlocks = 7;  // TCACHE_FILL_COUNT of glibc's malloc.c
  // Where a block of that size was cut from a larger one and 16 bytes were left, it has them too.
  static constexpr std::array<size_t, 2> kBytes = {656, 672};
  std::array<std::unique_ptr<std::byte[]>, kBlocks * kBytes.size()> taken_;
};

}  // namespace weft::ofi
