// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>

#include "src/tuner/policy.h"

// The tuner of a communicator: puts better known costs into NCCL's table. It has no state that changes, so
// each call depends on its arguments alone; any thread.
namespace weft::tuner {

constexpr float kIgnored = -1;        // NCCL's mark for an entry that cannot be had; any negative cost is one
constexpr float kPricedOut = 1e9F;    // us; below the hour from which on NCCL takes no entry
constexpr int kMostPipelined = 1024;  // operations launched as one; NCCL launches a handful

// NCCL's table: costs in us, row by row. Its size depends on NCCL's version. It may be null.
struct CostTable {
  float* costs = nullptr;
  int algorithms = 0;
  int protocols = 0;

  float* at(Algorithm algorithm, Protocol protocol) const;  // null: NCCL has no such entry
};

// An answer for tables of version 2.
struct Pick {
  Algorithm algorithm;
  Protocol protocol;
  double us;
};

class Tuner {
 public:
  Tuner(Policy policy, GpuLatencies gpu, Shape shape);

  // Writes the costs for which we have numbers. Ignored entries and all others stay. `collective` is NCCL's
  // number. Returns the number of entries written.
  int price(int collective, size_t bytes, int pipelined, const CostTable& table) const;

  // For tables that want a choice instead of costs (v2): the cheapest entry for which we have numbers and
  // which needs no promise of hardware that we do not see. Nothing: NCCL is to choose.
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
