// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/freed_early.h"

#include "src/base/reserve.h"

// Fills and empties this thread's cache of glibc's malloc.
namespace weft::ofi {

// In a file of its own, so that no compiler sees that the blocks are unused and leaves them out. The blocks
// of the first round, given back, fill the cache. So all blocks of the second round come from the cache and
// leave it empty. The first round alone would not do: when malloc finds blocks in a bin of the arena, it
// moves more of them into the cache.
RoomForFreed::RoomForFreed() {
  const MustNotFail closing;
  for (int round = 0; round < 2; round++) {
    for (auto& block : taken_) block.reset();
    for (size_t i = 0; i < taken_.size(); i++)
      taken_[i] = std::make_unique_for_overwrite<std::byte[]>(kBytes[i % kBytes.size()]);
  }
}

RoomForFreed::~RoomForFreed() = default;

}  // namespace weft::ofi
