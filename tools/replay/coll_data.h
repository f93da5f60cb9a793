// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/perf/elements.h"
#include "tools/replay/plan.h"

// The data that a rank brings into a recorded collective operation and has to get out of it: data whose
// reduction is exact, another for each rank and operation. Pure; any thread.
namespace weft::replay {

struct Stretch {
  size_t begin = 0;
  size_t bytes = 0;
};

class CollData {
 public:
  // Of this rank of a group. An error: the trace has no such type, reduction or window.
  static Result<CollData> of(const Op& op, int rank, int ranks);

  size_t sendBytes() const;
  size_t receiveBytes() const;
  size_t elements() const { return bytes_ / type_->bytes; }  // of the vector
  std::vector<std::byte> sent() const;
  // The fault in the result, or nothing.
  std::optional<std::string> wrong(std::span<const std::byte> received) const;

 private:
  Stretch partOf(int rank) const;  // of a rank's part what lies in the window, from the window's begin
  perf::Contributor contributor(int rank) const { return {rank, ranks_}; }

  trace::Kind kind_{};
  const perf::ElementType* type_ = nullptr;
  perf::RedOp op_{};
  int rank_ = 0;
  int ranks_ = 1;
  uint64_t number_ = 0;  // of the operation in its group
  size_t bytes_ = 0;     // of the vector, or of the window
  size_t bytesPerRank_ = 0;
  size_t windowBegin_ = 0;
};

}  // namespace weft::replay
