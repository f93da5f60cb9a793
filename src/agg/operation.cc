// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/operation.h"

#include <algorithm>
#include <cstring>

#include "src/coll/kernels.h"
#include "src/coll/plan.h"

// Combining, and the way back to the ranks.
namespace weft::agg {

using coll::Span;

void AggOperation::begin(const coll::OperationHead& head) {
  head_ = head;
  over_ = false;
  lates_.assign(static_cast<size_t>(members_.count()), 0);
  chunks_ = retired_ = bytesIn_ = 0;
  sentBefore_ = flights_.bytesSent();
  delivered_.assign(static_cast<size_t>(members_.count()), 0);
  beginFolds(head.sequence, {0, head.bytes});
}

AggOperation::Step AggOperation::progress(bool oldest, bool mayPost) {
  refused_ = !mayPost;
  bool fine = flights_.test(blocks_);
  if (fine && mayPost) fine = openFolds(oldest) && postFolds();
  fine = fine && advanceFolds();
  for (int rank = 0; rank < members_.count() && fine; rank++)
    if (members_.pipe(rank)) fine = deliver(rank);
  if (!fine) return Step::failed;
  retire();
  over_ = foldsAreDone() && deliveries_.empty() && flights_.empty();
  return over_ ? Step::done : Step::going;
}

size_t AggOperation::bytesFrom(int rank, Span piece) const {
  return coll::sentOf(head_, static_cast<uint32_t>(rank), piece).bytes();
}

// Reductions fold the ranks in their order. In a gather each rank sends only its own part, which is copied to
// its place.
bool AggOperation::combine(const Folding& folding) {
  std::byte* to = blocks_.piece(*folding.block, members_.count());
  std::vector<const void*> inputs;
  for (int rank = 0; rank < members_.count(); rank++) {
    if (!members_.pipe(rank)) continue;
    const Span span = coll::sentOf(head_, static_cast<uint32_t>(rank), folding.piece);
    const std::byte* from = blocks_.piece(*folding.block, rank);
    bytesIn_ += span.bytes();
    inputs.push_back(from);
    if (head_.kind == coll::OperationKind::allGather && span.bytes() > 0)
      std::memcpy(to + (span.begin - folding.piece.begin), from, span.bytes());
  }
  if (late_ >= 0) lates_[static_cast<size_t>(late_)]++;
  folding.block->uses++;
  deliveries_.push_back({folding.block, folding.piece});
  chunks_++;
  return head_.kind == coll::OperationKind::allGather ||
         coll::reduce(head_.type, head_.op, inputs, to, folding.piece.bytes());
}

// A slow rank holds up the blocks, and so in the end the other ranks, but never their results.
bool AggOperation::deliver(int rank) {
  uint64_t& next = delivered_[static_cast<size_t>(rank)];
  for (; next < chunks_; next++) {
    const Delivery& delivery = deliveries_[next - retired_];
    const Span span = coll::receivedOf(head_, static_cast<uint32_t>(rank), delivery.chunk);
    if (span.bytes() == 0) continue;
    const std::byte* from =
        blocks_.piece(*delivery.block, members_.count()) + (span.begin - delivery.chunk.begin);
    const auto came =
        flights_.send(rank, from, span.bytes(), delivery.block->sending[static_cast<size_t>(rank)],
                      coll::resultTag(turn_), delivery.block);
    if (came == coll::Flights::Post::failed) return false;
    if (came == coll::Flights::Post::notNow) return true;
    activity_++;
  }
  return true;
}

void AggOperation::retire() {
  const uint64_t least = *std::min_element(delivered_.begin(), delivered_.end());
  for (; retired_ < least; retired_++) {
    blocks_.release(deliveries_.front().block);
    deliveries_.pop_front();
  }
}

}  // namespace weft::agg
