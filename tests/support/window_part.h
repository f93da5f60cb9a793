// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

// Of an operation of collective offload, reckoned without the product's code.
namespace weft::test {

// The piece of a rank's part that lies in the window: [first, second), counted from the window's begin.
template <class Operation>
std::pair<size_t, size_t> windowPart(const Operation& operation, int rank) {
  const size_t end = operation.windowOffset + operation.windowBytes;
  const auto r = static_cast<size_t>(rank);
  const size_t from = std::clamp(r * operation.bytesPerRank, operation.windowOffset, end);
  const size_t to = std::clamp((r + 1) * operation.bytesPerRank, operation.windowOffset, end);
  return {from - operation.windowOffset, to - operation.windowOffset};
}

}  // namespace weft::test
