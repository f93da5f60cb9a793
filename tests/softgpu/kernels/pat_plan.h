// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <vector>

namespace softgpu {

// NCCL's PAT (parallel aggregated trees): block s of a rank is what it has of, or for, the rank s further on.
// Along dimension d, ranks that are 2^d apart exchange the blocks whose lowest set bit is d. Pure values.
//
// Which blocks share a step of a FIFO is NCCL's rule (PatRSAlgorithm and PatAGAlgorithm in its public
// src/include/collectives.h), as its proxies count steps by it. The order of steps is ours, as all ends are
// kernels of ours.
class PatPlan {
 public:
  // `stepBytes` that a step holds, `partBytes` of a block on this channel.
  PatPlan(int ranks, size_t stepBytes, size_t partBytes);

  int dimensions() const { return dimensions_; }
  // The blocks of each step. `mirrored`: the furthest first, as ReduceScatter has them.
  std::vector<std::vector<int>> steps(int dimension, bool mirrored) const;

 private:
  void addSteps(int first, int stride, int count, bool mirrored, std::vector<std::vector<int>>* steps) const;

  int ranks_;
  int dimensions_ = 0;  // 2^dimensions is the first power that holds all ranks
  int together_ = 1;    // blocks that are treated alike: they are 2^dimensions / together apart
  int inStep_ = 1;      // of those, so many share a step
};

}  // namespace softgpu
