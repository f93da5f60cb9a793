// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/plan.h"

#include <algorithm>

#include "src/coll/kernels.h"

// Shares, windows, and the faults of an operation.
namespace weft::coll {

namespace {

constexpr size_t kAlign = 128;  // two cache lines, so that ranks' parts never share one

// Equal shares in multiples of kAlign; the last ranks may have less, or nothing.
void share(size_t bytes, size_t ranks, std::vector<Part>* parts) {
  const size_t each = ((bytes + ranks - 1) / ranks + kAlign - 1) / kAlign * kAlign;
  for (size_t rank = 0; rank < ranks; rank++) {
    const size_t begin = std::min(bytes, rank * each);
    parts->push_back({begin, std::min(bytes, begin + each) - begin});
  }
}

// The piece of each rank's part that lies in the window, counted from the begin of the window.
void window(const Operation& operation, size_t ranks, std::vector<Part>* parts) {
  const size_t first = operation.windowOffset;
  const size_t end = first + operation.windowBytes;
  for (size_t rank = 0; rank < ranks; rank++) {
    const size_t from = std::clamp(rank * operation.bytesPerRank, first, end);
    const size_t to = std::clamp((rank + 1) * operation.bytesPerRank, first, end);
    parts->push_back({from - first, to - from});
  }
}

// For a gather or a scatter: the bytes of the window that lie in the rank's own part.
size_t ownBytes(const Operation& operation, int rank) {
  const size_t first = operation.windowOffset;
  const size_t end = first + operation.windowBytes;
  const auto r = static_cast<size_t>(rank);
  return std::clamp((r + 1) * operation.bytesPerRank, first, end) -
         std::clamp(r * operation.bytesPerRank, first, end);
}

const GroupMemory* ownMemory(const Operation& operation) {
  return operation.kind == OperationKind::allGather ? operation.sendMemory : operation.receiveMemory;
}

}  // namespace

void makePlan(const Operation& operation, int ranks, size_t oneStepBytes, Plan* plan) {
  const auto count = static_cast<size_t>(ranks);
  plan->parts.clear();
  plan->reduces = plan->distributes = plan->whole = false;
  switch (operation.kind) {
    case OperationKind::allReduce:
      plan->reduces = true;
      plan->whole = operation.bytes <= oneStepBytes;
      plan->distributes = !plan->whole;
      if (plan->whole)
        plan->parts.assign(count, {0, operation.bytes});
      else
        share(operation.bytes, count, &plan->parts);
      return;
    case OperationKind::reduceScatter:
      plan->reduces = true;
      window(operation, count, &plan->parts);
      return;
    case OperationKind::allGather:
      plan->distributes = true;
      window(operation, count, &plan->parts);
      return;
  }
}

size_t receivedBytes(const Operation& operation, int rank) {
  switch (operation.kind) {
    case OperationKind::allGather:
      return operation.windowBytes;
    case OperationKind::reduceScatter:
      return ownBytes(operation, rank);
    default:
      return operation.bytes;
  }
}

// 1 TiB bounds the products below: 4096 ranks of it fit into 64 bits. A negative size of NCCL's arrives here
// as a huge one.
const char* faultOf(const Operation& operation, int rank, int ranks) {
  constexpr size_t kMost = size_t{1} << 40;
  const bool windowed =
      operation.kind == OperationKind::allGather || operation.kind == OperationKind::reduceScatter;
  const bool reduces =
      operation.kind == OperationKind::allReduce || operation.kind == OperationKind::reduceScatter;
  if (reduces && !canReduce(operation.type, operation.op)) return "there is no such reduction of that type";
  const size_t element = reduces ? elementBytes(operation.type) : 1;
  if (operation.bytes > kMost || operation.windowBytes > kMost || operation.bytesPerRank > kMost)
    return "the size is negative or over 1 TiB";
  if (operation.bytes % element != 0 || operation.windowBytes % element != 0 ||
      operation.windowOffset % element != 0 || operation.bytesPerRank % element != 0)
    return "the size is not a number of whole elements";
  if (windowed &&
      (operation.windowOffset > operation.bytesPerRank * static_cast<size_t>(ranks) ||
       operation.windowBytes > operation.bytesPerRank * static_cast<size_t>(ranks) - operation.windowOffset))
    return "the window ends behind the last rank's part";
  if (windowed && ownBytes(operation, rank) > 0 && !ownMemory(operation))
    return "the registration of the rank's own part is null";
  return nullptr;
}

}  // namespace weft::coll
