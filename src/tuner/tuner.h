// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>

#include "src/tuner/policy.h"

// The tuner of one communicator: puts what it knows better into NCCL's table of costs. Holds no state that
// changes, so that each call depends on its arguments alone; any thread.
namespace weft::tuner {

constexpr float kIgnored = -1;        // NCCL's mark for what cannot be had; any negative cost is one
constexpr float kPricedOut = 1e9F;    // us; below the hour above which NCCL takes nothing
constexpr int kMostPipelined = 1024;  // operations launched as one; NCCL's are a handful

// NCCL's table: costs in us, row by row; the size depends on NCCL's version. May be null.
struct CostTable {
  float* costs = nullptr;
  int algorithms = 0;
  int protocols = 0;

  float* at(Algorithm algorithm, Protocol protocol) const;  // null: NCCL does not have it
};

struct Pick {
  Algorithm algorithm;
  Protocol protocol;
  double us;
};

class Tuner {
 public:
  Tuner(Policy policy, GpuLatencies gpu, Shape shape);

  // Writes the costs we have numbers for; entries that are ignored, and everything else, stay. The collective
  // is NCCL's number. Returns how many entries were written.
  int price(int collective, size_t bytes, int pipelined, const CostTable& table) const;

  // For tables that want an answer instead of costs (v2): the cheapest of what we have numbers for and what
  // needs no promise of hardware we do not see. Nothing: NCCL is to choose.
  std::optional<Pick> pick(int collective, size_t bytes, int pipelined, bool nvls) const;

  std::optional<Estimate> costOf(const Operation& operation) const;
  const Policy& policy() const { return policy_; }
  const Shape& shape() const { return shape_; }

 private:
  bool concerns(int collective) const;

  Policy policy_;
  GpuLatencies gpu_;
  Shape shape_;
};

}  // namespace weft::tuner
