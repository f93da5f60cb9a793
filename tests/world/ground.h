// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <span>
#include <vector>

// The memory of a world's messages. Which of them share a page decides what is registered and what is found
// again, so that has to follow from the seed: pieces lie one behind the other, and not where the heap has
// room. Used by one thread.
namespace weft::world {

class Ground {
 public:
  Ground() = default;
  ~Ground();
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  std::span<std::byte> take(size_t bytes);  // zeroed, until the ground is gone

 private:
  struct Field {
    std::byte* at;
    size_t bytes;
  };
  std::vector<Field> fields_;
  size_t used_ = 0;  // of the last one
};

}  // namespace weft::world
