// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tests/nccl/cases.h"
#include "tests/nccl/data.h"

namespace nccltest {

// One operation at one size, done again and again and timed. Sizes are those of nccl-tests: of the larger of
// what a rank gives and what it gets. One thread, the rank's.
class Operation {
 public:
  virtual ~Operation() = default;
  // Puts one on the rank's stream.
  virtual void enqueue() = 0;
  // Compares every element of the result.
  virtual bool isRight() const = 0;
};

// Names: all_reduce, all_gather, reduce_scatter, broadcast, send_recv (to the next rank, from the one
// before), all_to_all. Null when there is none of that name.
std::unique_ptr<Operation> makeOperation(const std::string& name, const Rank& rank, size_t bytes);

}  // namespace nccltest
