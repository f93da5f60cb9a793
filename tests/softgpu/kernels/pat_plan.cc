// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/pat_plan.h"

#include <algorithm>
#include <bit>

#include "tests/softgpu/kernels/layout.h"

namespace softgpu {

namespace {

// The bits of `index`, which is below the power `count`, inverted and in the opposite order.
int mirror(int index, int count) {
  int mirrored = 0;
  for (int bit = 1, opposite = count / 2; bit < count; bit *= 2, opposite /= 2) {
    if ((index & bit) == 0) mirrored += opposite;
  }
  return mirrored;
}

}  // namespace

// Small blocks share a step while two times as many would still fit; then the FIFO's depth is used.
PatPlan::PatPlan(int ranks, size_t stepBytes, size_t partBytes) : ranks_(ranks) {
  dimensions_ = std::bit_width(static_cast<unsigned>(ranks - 1));
  partBytes = std::max<size_t>(partBytes, 1);
  while (stepBytes / (partBytes * static_cast<size_t>(together_)) >= 2 && together_ < ranks / 2)
    together_ *= 2;
  inStep_ = together_;
  for (unsigned depth = kSteps; depth > 1 && together_ < ranks / 2; depth /= 2) together_ *= 2;
}

std::vector<std::vector<int>> PatPlan::steps(int dimension, bool mirrored) const {
  std::vector<std::vector<int>> steps;
  const int apart = (1 << dimensions_) / together_;
  const int lowest = 1 << dimension;
  if (lowest >= apart) {
    addSteps(lowest, 2 * lowest, (1 << dimensions_) / (2 * lowest), mirrored, &steps);
  } else {
    for (int first = lowest; first < apart; first += 2 * lowest)
      addSteps(first, apart, together_, mirrored, &steps);
  }
  return steps;
}

// Blocks of ranks that do not exist are left out, and steps without a block.
void PatPlan::addSteps(int first, int stride, int count, bool mirrored,
                       std::vector<std::vector<int>>* steps) const {
  for (int begin = 0; begin < count; begin += inStep_) {
    std::vector<int> blocks;
    for (int index = begin; index < std::min(begin + inStep_, count); ++index) {
      const int block = first + stride * (mirrored ? mirror(index, count) : index);
      if (block < ranks_) blocks.push_back(block);
    }
    if (!blocks.empty()) steps->push_back(std::move(blocks));
  }
}

}  // namespace softgpu
