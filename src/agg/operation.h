// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/coll/flights.h"

// An operation at a daemon: of each chunk it takes what the ranks bring in, combines it, and sends each rank
// what that rank is to have of it, each at the rank's own pace. A chunk's block is free again when every rank
// has its result; that bounds how far a rank may be ahead. The group owns it. Used by the thread that has the
// group.
namespace weft::agg {

class AggOperation final : public coll::Folds {
 public:
  enum class Step : uint8_t { going, done, failed };

  AggOperation(const coll::Members& ranks, coll::BlockPool& blocks)
      : Folds(ranks, blocks), flights_(ranks, &fault_) {}
  void begin(const coll::OperationHead& head);
  // As coll::Exchange::progress.
  Step progress(bool oldest, bool mayPost);
  const coll::OperationHead& head() const { return head_; }
  bool isReduced() const { return foldsAreDone(); }  // nothing of it is awaited from any rank
  bool isOver() const { return over_; }              // done, or not begun
  // How often all others waited for the rank.
  uint64_t lateOf(int rank) const { return lates_[static_cast<size_t>(rank)]; }
  uint64_t chunks() const { return chunks_; }  // combined
  uint64_t bytesIn() const { return bytesIn_; }
  uint64_t bytesOut() const { return flights_.bytesSent() - sentBefore_; }

 private:
  // A chunk that is combined, until every rank's result of it is posted.
  struct Delivery {
    coll::Block* block;
    coll::Span chunk;
  };
  size_t bytesFrom(int rank, coll::Span piece) const override;
  bool combine(const Folding& folding) override;
  bool deliver(int rank);
  void retire();

  bool over_ = true;
  coll::OperationHead head_;
  std::vector<uint64_t> lates_;  // by rank
  std::deque<Delivery> deliveries_;
  uint64_t chunks_ = 0;
  uint64_t retired_ = 0;             // chunks before deliveries_.front()
  std::vector<uint64_t> delivered_;  // by rank: chunks whose result is posted
  coll::Flights flights_;
  uint64_t bytesIn_ = 0;
  uint64_t sentBefore_ = 0;
};

}  // namespace weft::agg
