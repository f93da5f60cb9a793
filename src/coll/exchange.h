// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/coll/flights.h"
#include "src/coll/plan.h"

// A rank's part in an operation, by its plan: it sends each member that member's part of what it brings in,
// reduces its own part (folds.h), sends that to the others, and receives theirs. All steps of several pieces
// go on at a time. The backend (exchanges.h) owns it and calls progress() until it says done. Used by the
// thread of the data calls.
namespace weft::coll {

// A registration on the comms with every member. The application's memory is registered once a comm and
// direction.
class ComMemory final : public GroupMemory {
 public:
  std::vector<core::MemoryHandle*> sending, receiving;  // by member; null for this one
};

class Exchange final : public Folds {
 public:
  enum class Step : uint8_t { going, done, failed };

  // `resultBytes`: the most bytes of a message of a result, the same on all members.
  Exchange(const Members& members, BlockPool& blocks, size_t resultBytes)
      : Folds(members, blocks), resultBytes_(resultBytes), flights_(members, &fault_) {}

  // The caller fills in the plan first.
  Plan& plan() { return plan_; }
  void begin(uint64_t turn, const Operation& operation);
  // Moves everything that can move now. `oldest`: no exchange before this one still moves, so it may take the
  // last blocks. `mayPost`: all exchanges before it have posted all they can.
  Step progress(bool oldest, bool mayPost);
  bool isDone() const { return done_; }
  uint64_t bytesSent() const { return flights_.bytesSent(); }

 private:
  size_t bytesFrom(int, Span piece) const override { return piece.bytes(); }
  bool mayCombine() const override;
  bool combine(const Folding& folding) override;
  void takeOwnPart();
  // The steps of progress(). False: the exchange failed.
  bool postContributions();
  bool postResults();
  bool postResultReceives();
  bool postAll(const std::vector<Part>& parts, std::vector<size_t>* sent, size_t most, int tag,
               bool (Exchange::*one)(int, size_t, size_t, int, bool*));
  bool contribute(int member, size_t at, size_t bytes, int tag, bool* posted);
  bool ask(int member, size_t at, size_t bytes, int tag, bool* posted);
  bool isPosted(const std::vector<Part>& parts, const std::vector<size_t>& sent) const;
  bool noteResult(Flights::Post came, bool* posted);
  bool finished() const;
  static core::MemoryHandle* handleOf(const GroupMemory* memory, int member, bool sends);

  const size_t resultBytes_;
  bool done_ = true;
  Operation operation_;
  Plan plan_;
  std::vector<size_t> contributed_;  // by member: bytes of its part that we have sent
  std::vector<size_t> resultSent_;   // by member: bytes of our result that it has been sent
  std::vector<size_t> resultAsked_;  // by member: bytes of its result for which receives are posted
  Flights flights_;
  size_t reduced_ = 0;  // bytes of our part that are final, from its begin on
};

}  // namespace weft::coll
