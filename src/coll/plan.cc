// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/plan.h"

#include "src/coll/kernels.h"
#include "src/coll/wire.h"

// Shares, windows, and the faults of an operation.
namespace weft::coll {

namespace {

// Equal shares in multiples of two cache lines, so that ranks' parts never share one; the last ranks may have
// less, or nothing.
Part shareOf(size_t bytes, size_t ranks, size_t rank) {
  const size_t each = ((bytes + ranks - 1) / ranks + kChunkAlign - 1) / kChunkAlign * kChunkAlign;
  const size_t begin = std::min(bytes, rank * each);
  return {begin, std::min(bytes, begin + each) - begin};
}

Span windowPart(const Operation& operation, int rank) {
  return partOf(operation.bytesPerRank, operation.windowOffset, operation.windowBytes,
                static_cast<uint32_t>(rank));
}

}  // namespace

bool isWindowed(OperationKind kind) {
  return kind == OperationKind::allGather || kind == OperationKind::reduceScatter;
}

size_t vectorBytes(const Operation& operation) {
  return isWindowed(operation.kind) ? operation.windowBytes : operation.bytes;
}

void makePlan(const Operation& operation, int rank, int ranks, size_t oneStepBytes, Plan* plan) {
  const auto count = static_cast<size_t>(ranks);
  plan->reduces = isReduction(operation.kind);
  plan->whole = operation.kind == OperationKind::allReduce && operation.bytes <= oneStepBytes;
  plan->distributes = operation.kind != OperationKind::reduceScatter && !plan->whole;
  std::vector<Part>& parts = plan->give;
  parts.clear();
  for (size_t r = 0; r < count; r++) {
    const Span span = windowPart(operation, static_cast<int>(r));
    const bool shared = operation.kind == OperationKind::allReduce;
    parts.push_back(plan->whole ? Part{0, operation.bytes}
                    : shared    ? shareOf(operation.bytes, count, r)
                                : Part{span.begin, span.bytes()});
  }
  plan->own = parts[static_cast<size_t>(rank)];
  plan->ownAt = operation.kind == OperationKind::reduceScatter ? 0 : plan->own.offset;
  plan->take.assign(count, {});
  if (plan->distributes) plan->take = parts;
  if (!plan->reduces) plan->own.offset = 0;  // what a rank brings into a gather is its part alone
  if (!plan->reduces) parts.assign(count, {});
}

void makeTreePlan(const Operation& operation, int rank, size_t chunkBytes, Plan* plan) {
  const Part all{0, vectorBytes(operation)};
  const Span span = windowPart(operation, rank);
  const Part part{0, span.bytes(), span.begin % chunkBytes};
  plan->give.assign(1, operation.kind == OperationKind::allGather ? part : all);
  plan->take.assign(1, operation.kind == OperationKind::reduceScatter ? part : all);
  plan->own = {};
  plan->reduces = plan->distributes = plan->whole = false;
}

size_t receivedBytes(const Operation& operation, int rank) {
  return operation.kind == OperationKind::reduceScatter ? windowPart(operation, rank).bytes()
                                                        : vectorBytes(operation);
}

// 1 TiB bounds the products below: 4096 ranks of it fit into 64 bits. A negative size of NCCL's arrives here
// as a huge one.
const char* faultOf(const Operation& operation, int rank, int ranks) {
  constexpr size_t kMost = size_t{1} << 40;
  const bool reduces = isReduction(operation.kind);
  if (reduces && !canReduce(operation.type, operation.op)) return "there is no such reduction of that type";
  const size_t element = reduces ? elementBytes(operation.type) : 1;
  if (operation.bytes > kMost || operation.windowBytes > kMost || operation.bytesPerRank > kMost)
    return "the size is negative or over 1 TiB";
  for (const size_t bytes :
       {operation.bytes, operation.windowBytes, operation.windowOffset, operation.bytesPerRank})
    if (bytes % element != 0) return "the size is not a number of whole elements";
  if (!isWindowed(operation.kind)) return nullptr;
  const size_t whole = operation.bytesPerRank * static_cast<size_t>(ranks);
  if (operation.windowOffset > whole || operation.windowBytes > whole - operation.windowOffset)
    return "the window ends behind the last rank's part";
  const GroupMemory* own = reduces ? operation.receiveMemory : operation.sendMemory;
  if (windowPart(operation, rank).bytes() > 0 && !own)
    return "the registration of the rank's own part is null";
  return nullptr;
}

}  // namespace weft::coll
