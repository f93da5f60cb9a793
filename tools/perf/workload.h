// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/netdriver/comm.h"
#include "tools/perf/operation.h"

// The data of one communicator on one rank: what goes in, what must come out. Used by one thread.
namespace weft::perf {

// A measurement: an operation on so many elements.
struct Case {
  const Operation* operation = nullptr;
  const ElementType* type = nullptr;
  RedOp op = RedOp::sum;
  int root = 0;
  int rank = 0;
  int size = 1;
  bool inPlace = false;
  // Elements of the whole, and of a rank's part of it where the operation has parts.
  size_t total = 0;
  size_t part = 0;

  // As many elements as fit into `bytes`; parts are equal, so what does not divide is left out.
  void setBytes(uint64_t bytes);

  uint64_t bytes() const { return total * type->bytes; }
  // nccl-tests' column "count": what a rank passes to NCCL.
  size_t count() const { return operation->inParts ? part : total; }
  size_t inputCount() const { return operation->movement == Movement::allGather ? part : total; }
  size_t outputCount() const { return operation->movement == Movement::reduceScatter ? part : total; }
};

class Workload {
 public:
  // Room for several iterations side by side; each is as large as its case.
  static Result<Workload> create(size_t bytes);

  // Gives the first `bytes` of input and output their memory, before anything in them is measured.
  void prepare(size_t bytes);

  // All of it, out of place.
  std::span<std::byte> inputMemory() const { return first_.span(); }
  std::span<std::byte> outputMemory() const { return second_.span(); }

  // How many iterations of a case have room.
  size_t slots(const Case& c) const;

  // The data that a collective works on in a slot: elements `begin` to `begin` + `count` of each part, or of
  // the whole.
  Work work(const Case& c, size_t slot, size_t begin, size_t count) const;

  // `number` tells iterations and communicators apart: their data differs.
  void fillInput(const Case& c, size_t slot, uint64_t number) const;
  // Wrong elements in the slot's output; the first of them is described on stderr if `describe`.
  uint64_t countWrong(const Case& c, size_t slot, uint64_t number, bool describe) const;

 private:
  std::byte* input(const Case& c, size_t slot) const;
  std::byte* output(const Case& c, size_t slot) const;

  netdriver::HostBuffer first_;
  netdriver::HostBuffer second_;
  size_t prepared_ = 0;
};

}  // namespace weft::perf
